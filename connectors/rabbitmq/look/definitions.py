"""What the management API lists of a virtual host: its queues, exchanges, bindings and policies."""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dlq.connectors.rabbitmq.look.discovery import names_dead_letters
from dlq.connectors.rabbitmq.look.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.look.topology import (
    Topology,
    alternate_of,
    limit_in_force,
    policies_of,
    version_of,
)
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker

_Named = Mapping[str, Mapping[str, Any]]
_QUEUES = (
    "name,type,arguments,effective_policy_definition,messages_ready,message_bytes_ready,consumers,"
    "exclusive,auto_delete,policy"
)
_EXCHANGES = "name,type,arguments,policy"


@dataclass(frozen=True)
class Definitions:
    """What the management API lists of a virtual host, by name."""

    vhost: str
    version: tuple[int, ...]
    queues: _Named
    exchanges: _Named
    bindings: Collection[Mapping[str, Any]]
    policies: _Named | None = None
    """None: the user may not see them; what they say of queues is shown with the queues."""

    @cached_property
    def for_dead_letters(self) -> list[str]:
        """Queues whose names say so."""
        return sorted(filter(names_dead_letters, self.queues))

    def topology(self, name: str) -> Topology:
        """Return one queue."""
        shown = self.queues[name]
        arguments, policy = mapping(shown.get("arguments")), mapping(shown.get("effective_policy_definition"))
        kind, is_told = str(shown.get("type", "classic")), "effective_policy_definition" in shown
        return Topology(
            kind,
            arguments,
            policy,
            {"auto_delete": shown.get("auto_delete") is True},
            is_told,
            limit_in_force(kind, arguments, policy, self.version) if is_told else None,
        )

    def alternate(self, exchange: str) -> str | None:
        """See `topology.alternate_of`."""
        return alternate_of(self.exchanges[exchange], self.policies)


def fetch(broker: RabbitBroker) -> Definitions:
    """Ask the management API. Raises ManagementError."""
    with closing(Management(broker)) as ask:
        version = (ask.get("overview") or {}).get("rabbitmq_version")
        return Definitions(
            ask.vhost,
            version_of(str(version)),
            _by_name(ask.get_all("queues", ask.vhost, columns=_QUEUES)),
            _by_name(ask.get_all("exchanges", ask.vhost, columns=_EXCHANGES)),
            ask.get_all("bindings", ask.vhost),
            _policies(ask),
        )


def _policies(ask: Management) -> _Named | None:
    try:
        return policies_of(ask)
    except ManagementError:
        return None


def _by_name(listed: Collection[Mapping[str, Any]]) -> _Named:
    return {str(one.get("name")): one for one in listed}
