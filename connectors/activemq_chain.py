"""Several queues read one after the other as one reading: a pattern over individual DLQs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.activemq_reading import StompReading, Walk
from dlq.connectors.base import Batch


class ChainReading:
    """Positions run on from one queue to the next. A queue's connection is closed as soon as nothing is
    owed to it any more: after a copy at once, after a drain when its acknowledgements are answered."""

    unique_ids = False

    def __init__(self, walks: Sequence[Walk], limit: int | None) -> None:
        self._walks, self._limit = walks, limit
        self._open: list[tuple[int, StompReading]] = []
        depths = [walk.depth for walk in walks if walk.depth is not None]
        self.snapshot = sum(depths) if len(depths) == len(walks) else None
        self.notes: Sequence[str] = list(dict.fromkeys(note for walk in walks for note in walk.notes))
        self.topology: Mapping[str, Any] = {"queues": [walk.topology for walk in walks]}
        self.complete = False
        self._settled = 0

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        base = seen = 0
        complete = True
        for walk in self._walks:
            rest = None if self._limit is None else self._limit - seen
            if rest == 0:
                break
            reading = StompReading(walk, rest)
            self._open.append((base, reading))
            for batch in reading.batches():
                yield batch._replace(position=base + batch.position)
            base += reading.position
            seen += reading.seen
            complete = complete and reading.complete
            if walk.request.mode == "copy":
                reading.close()
        self.complete = complete

    def acknowledge(self, position: int) -> None:
        """See `Reading`."""
        for base, reading in self._open:
            if position > base:
                reading.acknowledge(position - base)

    def settled(self) -> int:
        """See `Reading`."""
        for base, reading in list(self._open):
            self._settled = max(self._settled, base + reading.settled())
            if self._settled < base + reading.position or reading is self._open[-1][1]:
                break
            reading.close()
            self._open.remove((base, reading))
        return self._settled

    def close(self) -> None:
        """See `Reading`."""
        for _, reading in self._open:
            reading.close()
