"""Which queues of a virtual host look like dead-letter queues, by its management API."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.base import DeadLetterPlace
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.topology import alternate_exchanges
from dlq.connectors.web import whole
from dlq.core.errors import Unreachable, UsageError
from dlq.core.suggestions import suggest

_Queue = Mapping[str, Any]
_Ways = Mapping[str, set[str]]
_NONE: Mapping[str, str] = {}

_NAMED = re.compile(
    r"(?: ^|[._-] ) (?: dlq | dl | dead | dead[._-]?letters? | errors? | failed | failures? | poison"
    r" | parked | parking | parking[._-]?lot | quarantine | unrout(?:ed|able) | skipped ) (?: $|[._-] )",
    re.IGNORECASE | re.VERBOSE,
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where words of camelCase meet."""
_COLUMNS = "name,type,arguments,effective_policy_definition,messages,consumers,head_message_timestamp"


def discover(broker: RabbitBroker) -> list[DeadLetterPlace]:
    """All that dead letters are sent to, or are named so. Raises UsageError without a management URL,
    Unreachable."""
    if not broker.management_url:
        raise UsageError(
            f"brokers.{broker.name} needs management_url: RabbitMQ lists its queues nowhere else"
        )
    management = Management(broker)
    try:
        queues = management.get_all("queues", management.vhost, columns=_COLUMNS)
        bindings = management.get_all("bindings", management.vhost)
        alternates = alternate_exchanges(management)
    except ManagementError as error:
        raise Unreachable(str(error)) from error
    finally:
        management.close()
    return list(places(queues, bindings, alternates))


def suggest_queue(broker: RabbitBroker, queue: str) -> str:
    """`; did you mean 'orders.dlq'?` of a queue that is not there, where the management API can tell."""
    if not broker.management_url:
        return ""
    management = Management(broker)
    try:
        queues = management.get_all("queues", management.vhost, columns="name")
    except ManagementError:
        return ""
    finally:
        management.close()
    return suggest(queue, [str(one.get("name")) for one in queues])


def places(
    queues: Sequence[_Queue], bindings: Sequence[Mapping[str, Any]], alternates: Mapping[str, str] = _NONE
) -> Iterator[DeadLetterPlace]:
    """`queues` and `bindings` as the management API shows them; `alternates`: alternate exchange -> an
    exchange that has it."""
    fed = _fed(queues, bindings, alternates)
    for queue in sorted(queues, key=lambda queue: str(queue.get("name"))):
        name = str(queue.get("name"))
        because = fed.get(name, "its name says so")
        if queue.get("type") != "stream" and (name in fed or _NAMED.search(_HUMPS.sub(".", name))):
            oldest = whole(queue.get("head_message_timestamp"))
            yield DeadLetterPlace(
                name,
                {"queue": name},
                str(queue.get("type", "classic")),
                because,
                whole(queue.get("messages")),
                whole(queue.get("consumers")),
                None if oldest is None else oldest * 1_000_000,
            )


def _fed(
    queues: Sequence[_Queue], bindings: Sequence[Mapping[str, Any]], alternates: Mapping[str, str]
) -> dict[str, str]:
    """A queue -> why letters come to it: bound to a dead-letter exchange by any key, or named by a routing
    key of the default exchange; or behind an alternate exchange."""
    direct, onward = _ways(bindings)
    seen: set[str] = set()
    fed: dict[str, str] = {}
    for queue in queues:
        exchange, key = (_setting(queue, f"dead-letter-{name}") for name in ("exchange", "routing-key"))
        if exchange is not None:
            targets = _reached(exchange, direct, onward, seen) if exchange else [key or ""]
            for target in targets:
                fed.setdefault(target, f"dead letters of {queue.get('name')} go there")
    for alternate, exchange in alternates.items():
        for target in _reached(alternate, direct, onward, seen):
            fed.setdefault(target, f"what {exchange} cannot route goes there")
    return fed


def _ways(bindings: Sequence[Mapping[str, Any]]) -> tuple[_Ways, _Ways]:
    """Exchange -> the queues that are bound to it, the exchanges that are."""
    direct: dict[str, set[str]] = {}
    onward: dict[str, set[str]] = {}
    for binding in bindings:
        if source := binding.get("source"):
            to = direct if binding.get("destination_type") == "queue" else onward
            to.setdefault(str(source), set()).add(str(binding.get("destination")))
    return direct, onward


def _reached(exchange: str, direct: _Ways, onward: _Ways, seen: set[str]) -> set[str]:
    """The queues that it leads to, also by other exchanges, but those that were `seen` before: a host may
    have very many, one behind another."""
    ahead, queues = {exchange} - seen, set[str]()
    while ahead:
        one = ahead.pop()
        seen.add(one)
        queues |= direct.get(one, set())
        ahead |= onward.get(one, set()) - seen
    return queues


def _setting(queue: _Queue, name: str) -> str | None:
    found = mapping(queue.get("arguments")).get(f"x-{name}")
    found = mapping(queue.get("effective_policy_definition")).get(name) if found is None else found
    return None if found is None else str(found)
