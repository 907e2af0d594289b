"""How a command reaches a broker, and the dangers that it names before: each once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlq.cli.context import Context
from dlq.core import cleartext

if TYPE_CHECKING:
    from dlq.connectors.base import Connector
    from dlq.core.settings import Broker, Source


def connect(context: Context, broker: "Broker") -> "Connector":
    """`open_connector`, after a warning where the broker's password goes out in the clear."""
    from dlq.connectors import open_connector

    for line in cleartext.of_broker(broker):
        context.warn(line)
    return open_connector(broker)


def warn_of_overlaps(context: Context, sources: Sequence["Source"]) -> None:
    """Warn where the letters of these sources are archived by another name, too."""
    from dlq.capture import overlaps

    for line in overlaps.warnings(context.settings, context.store, sources):
        context.warn(line)


def warn_of_ledger(context: Context) -> None:
    """Warn where the ledger's password goes out in the clear."""
    for line in cleartext.of_store("ledger", context.settings.ledger):
        context.warn(line)


def warn_of_evidence(context: Context) -> None:
    """The same of the stores of evidence."""
    for store in context.settings.evidence.values():
        for line in cleartext.of_store(f"evidence.{store.name}", store):
            context.warn(line)
