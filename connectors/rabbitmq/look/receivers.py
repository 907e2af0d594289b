"""Who receives what is published to a target: RabbitMQ's bindings, read from the management API."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from typing import Any

from dlq.connectors.base import Target
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.look.routes import topic_matches
from dlq.connectors.rabbitmq.look.topology import alternate_of, policies_of
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.republish import address_of
from dlq.core.runtime import patience


def consumers_of(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
    """See `Connector.consumers`. Raises ManagementError; without `management_url` nothing is proven."""
    if not broker.management_url:
        return {}
    with closing(Management(broker)) as management:
        bindings = Bindings(management)
        until = time.monotonic() + patience.ENDLESS
        asked = {target: address_of(target) for target in targets}
        found = {target: bindings.queues(exchange, [key], until) for target, (exchange, key) in asked.items()}
    return {target: sorted(queues) for target, queues in found.items() if queues is not None}


class Bindings:
    """Where a virtual host's exchanges lead to; each is asked for once."""

    def __init__(self, management: Management) -> None:
        self._queues = cache(partial(management.get, "queues", management.vhost))
        self._exchanges = cache(partial(management.get, "exchanges", management.vhost))
        self._bindings = cache(management.get_bindings_of)
        self._policies = cache(partial(policies_of, management))

    def queues(self, exchange: str, keys: Sequence[str], until: float | None = None) -> set[str] | None:
        """Return all queues that one message reaches, whose keys are its routing key and those of CC; None
        where an exchange's type does not say, or the way does not come to an end `until` then (by the
        monotonic clock), or soon. Raises ManagementError."""
        until = time.monotonic() + patience.ENDLESS if until is None else until
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
                queues |= {key for key in keys if self.queue(key)}
                continue
            reached = self._route(name, keys)
            if reached is None:
                return None
            queues |= {name for kind, name in reached if kind == "queue"}
            exchanges += [name for kind, name in reached if kind == "exchange"]
        return queues

    def queue(self, name: str) -> Mapping[str, Any]:
        """Return a queue as the management API shows it; nothing: it is not there. Raises ManagementError."""
        return self._queues(name) or {}

    def _route(self, exchange: str, keys: Sequence[str]) -> list[tuple[str, str]] | None:
        """Return (kind, name) of what one exchange routes these keys to; else its alternate exchange."""
        found = self._exchanges(exchange)
        if found is None:
            return []
        matches = _MATCHES.get(str(found.get("type")))
        if matches is None:
            return None
        reached = [
            (str(binding.get("destination_type")), str(binding.get("destination")))
            for binding in self._bindings(exchange)
            if any(matches(str(binding.get("routing_key", "")), key) for key in keys)
        ]
        return reached or self._alternate(found)

    def _alternate(self, exchange: Mapping[str, Any]) -> list[tuple[str, str]] | None:
        """Return what takes what nothing is bound for; None where a policy that the user may not see may name
        it."""
        name = alternate_of(exchange, None)
        if name == "":
            try:
                name = alternate_of(exchange, self._policies())
            except ManagementError:
                return None
        return [("exchange", name)] if name else []


_MATCHES = {
    "direct": lambda pattern, key: pattern == key,
    "fanout": lambda _pattern, _key: True,
    "topic": topic_matches,
}
"""How the types that need only the routing key match it; headers and plugin types need more."""
