"""A connector that asks nobody: it plans a letter's way back by what the letter says, for whom may open no
connection to a broker."""

from collections.abc import Callable
from typing import Any, cast

from dlq.connectors.base import Connector
from dlq.core.brokers import plugin_of, resolve
from dlq.core.errors import Unreachable, UsageError
from dlq.core.settings import Broker


class _Unasked:
    """Knows where a letter goes, and what sending takes away; all else would need the broker."""

    def __init__(self, broker: Broker) -> None:
        module = plugin_of(broker.kind).republishing
        if not module:
            raise UsageError(
                f"of {broker.kind} nothing is planned without asking {broker.name}; ask a person"
            )
        self.target_of = resolve(f"{module}:target_of")
        self.preview = resolve(f"{module}:preview_offline")
        self._name = broker.name

    def __getattr__(self, asked: str) -> Callable[..., Any]:
        def refuse(*_: object, **__: object) -> None:
            raise Unreachable(f"{self._name} was not asked")

        return refuse

    def close(self) -> None:
        """Close nothing: nothing is open."""


def open_offline(broker: Broker) -> Connector:
    """Return a connector that plans for `broker` without it: whatever would ask it raises Unreachable."""
    return cast(Connector, _Unasked(broker))
