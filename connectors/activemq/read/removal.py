"""Whether what a drain acknowledged is gone: an answered acknowledgement does not prove that.

A queue of Artemis may be non-destructive by itself, which its management does not show (2.56.0): it answers
each acknowledgement and keeps the letter. So no more counts as settled than the broker counts as taken. Where
it does not let us see its counts, a second look tells whether the first letter is there again.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

from dlq.connectors.base import Batch
from dlq.connectors.chain import QueueScan, Scan
from dlq.core.columns import column
from dlq.core.errors import DlqError
from dlq.core.runtime import patience

_Count = Callable[[], int | None]
_KEPT = (
    "{}: {:,} letters were acknowledged, and the broker counts {:,} that were taken: the rest may come "
    "again, and is known then"
)
_SHOWN_AGAIN = (
    "{}: the first of its letters is there again after its acknowledgement, or nobody could look: the queue "
    "may be non-destructive, and all of it may come again, and is known then"
)


def count_removals(scan: Scan, count: _Count, looks_again: bool, notes: list[str]) -> QueueScan:
    """Return the same queue, settled as far as `count` has grown: letters taken since some moment, by the
    broker. Where that does not tell, None, a second look does if `looks_again`. What speaks against the drain
    goes to `notes`."""
    before = count()

    def begin(limit: int | None) -> _Counted:
        return _Counted(scan, limit, count, before, looks_again, notes)

    return QueueScan(scan.queue, scan.depth, scan.topology, begin, scan.notes)


class _Counted:
    """See `dlq.connectors.chain.Part`."""

    alike = False

    def __init__(
        self, scan: Scan, limit: int | None, count: _Count, before: int | None, again: bool, notes: list[str]
    ) -> None:
        self._scan, self._count, self._before, self._looks_again = scan, count, before, again
        self._notes, self._part = notes, scan.begin(limit)
        self._first: set[tuple[str, str]] = set()
        self._answered = self._removed = 0
        self._is_again: bool | None = None
        self._is_short = False

    @property
    def complete(self) -> bool:
        """Not where letters may come again."""
        return self._part.complete and not self._is_short

    @property
    def position(self) -> int:
        """See `Part`."""
        return self._part.position

    @property
    def seen(self) -> int:
        """See `Part`."""
        return self._part.seen

    def batches(self) -> Iterator[Batch]:
        """See `Part`."""
        for batch in self._part.batches():
            self._first = self._first or _identities(batch)
            yield batch

    def acknowledge(self, position: int) -> None:
        """See `Part`."""
        self._part.acknowledge(position)

    def settled_position(self) -> int:
        """Ask for the answers, and whether the broker counts as much."""
        answered = self._part.settled_position()
        if answered > self._answered:
            self._answered, self._removed = answered, self._count_gone(answered)
            self._is_short = self._removed < answered
        return self._removed

    def _count_gone(self, answered: int) -> int:
        """Return how many of so many letters are. A count may come late, and begins anew with the broker."""
        for _ in patience.tries(patience.COUNTED):
            now = self._count()
            if now is None or self._before is None:
                return 0 if self._is_there_again() else answered
            if not 0 <= (gone := now - self._before) < answered:
                return answered
        return gone

    def _is_there_again(self) -> bool:
        """Asked once, and of letters that stay, too: they lie in front of it."""
        if self._is_again is None and self._looks_again:
            self._is_again = True
            with suppress(DlqError), closing(self._scan.begin(self.seen - self.position + 1)) as look:
                shown = [_identities(batch) for batch in look.batches()]
                self._is_again = any(self._first & some for some in shown)
        return bool(self._is_again)

    def close(self) -> None:
        """See `Part`."""
        self._part.close()
        if self._is_short:
            said = _SHOWN_AGAIN if self._is_again else _KEPT
            self._notes.append(said.format(self._scan.queue, self._answered, self._removed))


def _identities(batch: Batch) -> set[tuple[str, str]]:
    """Return the letters' ids, with what the broker names them by."""
    return set(zip(column(batch.records, "record_id"), column(batch.records, "physical_id"), strict=True))
