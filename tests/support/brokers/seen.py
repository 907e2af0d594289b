"""What one reading of a log gave, for the tests of brokers that keep one."""

from dataclasses import dataclass

from dlq.connectors.base import Batch, Connector, Gap, ReadRequest
from dlq.core.record import Record


@dataclass
class Seen:
    """What one reading gave."""

    records: list[Record]
    batches: list[Batch]
    checkpoint: dict[str, int]
    snapshot: int | None
    complete: bool
    notes: list[str]

    @property
    def gaps(self) -> list[Gap]:
        """Of all batches."""
        return [gap for batch in self.batches for gap in batch.gaps]

    @property
    def reached(self) -> dict[str, int]:
        """The offsets of the checkpoint, without when its letters were stored."""
        return {key: value for key, value in self.checkpoint.items() if "#" not in key}


def read_all(connector: Connector, request: ReadRequest) -> Seen:
    """One reading from its start to its end."""
    reading = connector.read(request)
    batches = list(reading.batches())
    reading.close()
    checkpoint = {key: offset for batch in batches for key, offset in batch.checkpoint.items()}
    records = [record for batch in batches for record in batch.records]
    return Seen(records, batches, checkpoint, reading.snapshot, reading.complete, list(reading.notes))
