"""Who receives what is published to a target: RabbitMQ's bindings, read from the management API."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.base import Target
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, mapping
from dlq.connectors.rabbitmq.republishing import address_of

_SECONDS = 120.0
"""For all questions: exchanges may lead to exchanges without end."""


def consumers_of(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
    """See `Connector.consumers`. Raises ManagementError; without `management_url` nothing is proven."""
    if not broker.management_url:
        return {}
    management = Management(broker)
    try:
        until = time.monotonic() + _SECONDS
        found = {target: _queues(management, until, *address_of(target)) for target in targets}
    finally:
        management.close()
    return {target: sorted(queues) for target, queues in found.items() if queues is not None}


def _queues(management: Management, until: float, exchange: str, key: str) -> set[str] | None:
    """All queues that one message reaches; None where an exchange's type does not say, or the way does not
    come to an end `until` then."""
    queues: set[str] = set()
    scanned: set[str] = set()
    exchanges = [exchange]
    while exchanges:
        name = exchanges.pop()
        if name in scanned:
            continue
        if time.monotonic() > until:
            return None
        scanned.add(name)
        if name == "":
            queues |= {key} if management.get("queues", management.vhost, key) else set()
            continue
        reached = _bound(management, name, key)
        if reached is None:
            return None
        queues |= {name for kind, name in reached if kind == "queue"}
        exchanges += [name for kind, name in reached if kind == "exchange"]
    return queues


def _bound(management: Management, exchange: str, key: str) -> list[tuple[str, str]] | None:
    """(kind, name) of what one exchange routes the key to; its alternate exchange when that is nothing."""
    found = management.get("exchanges", management.vhost, exchange)
    if found is None:
        return []
    matches = _MATCHES.get(str(found.get("type")))
    if matches is None:
        return None
    reached = [
        (str(binding.get("destination_type")), str(binding.get("destination")))
        for binding in management.get_bindings_of(exchange)
        if matches(str(binding.get("routing_key", "")), key)
    ]
    return reached or [("exchange", alternate) for alternate in _alternates(found)]


def _alternates(exchange: Mapping[str, Any]) -> Iterator[str]:
    """The policy wins over the argument (https://www.rabbitmq.com/docs/ae)."""
    policy = mapping(exchange.get("effective_policy_definition"))
    arguments = mapping(exchange.get("arguments"))
    for name in (policy.get("alternate-exchange"), arguments.get("alternate-exchange")):
        if isinstance(name, str):
            yield name
            return


def _topic_matches(pattern: str, key: str) -> bool:
    """`*` is one word, `#` none or more, words are parted by dots."""
    words = key.split(".") if key else []
    reached, before = {0}, ""
    for part in pattern.split(".") if pattern else []:
        if part == "#" != before:
            reached = set(range(min(reached), len(words) + 1))
        elif part != "#":
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
        before = part
    return len(words) in reached


_MATCHES = {
    "direct": lambda pattern, key: pattern == key,
    "fanout": lambda _pattern, _key: True,
    "topic": _topic_matches,
}
"""How the types that need only the routing key match it; headers and plugin types need more."""
