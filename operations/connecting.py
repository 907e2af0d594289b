"""How an operation reaches a broker, and the dangers that it names before."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlq.core import cleartext
from dlq.operations.desk import Desk

if TYPE_CHECKING:
    from dlq.connectors.base import Connector
    from dlq.core.settings import Broker, Source


def connect(desk: Desk, broker: "Broker") -> "Connector":
    """`open_connector`, after a warning where the broker's password goes out in the clear."""
    from dlq.connectors import open_connector

    for line in cleartext.of_broker(broker):
        desk.listener.warn(line)
    return open_connector(broker)


def warn_of_overlaps(desk: Desk, sources: Sequence["Source"]) -> None:
    """Warn where the letters of these sources are archived by another name, too."""
    from dlq.capture import overlaps

    for line in overlaps.warnings(desk.settings, desk.store, sources):
        desk.listener.warn(line)


def warn_of_ledger(desk: Desk) -> None:
    """Warn where the ledger's password goes out in the clear."""
    for line in cleartext.of_store("ledger", desk.settings.ledger):
        desk.listener.warn(line)


def warn_of_evidence(desk: Desk) -> None:
    """Warn where the password of a store of evidence goes out in the clear."""
    for store in desk.settings.evidence.values():
        for line in cleartext.of_store(f"evidence.{store.name}", store):
            desk.listener.warn(line)
