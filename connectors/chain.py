"""Several queues read one after the other as one reading: a pattern over individual DLQs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dlq.connectors.base import Batch, Mode
from dlq.connectors.queue import QueueReading, goal_of
from dlq.core.errors import OF_ONE_MEMBER, DlqError
from dlq.core.text import for_terminal

_NAMED = 20


class Part(Protocol):
    """A `Reading` of one queue that can be followed by another."""

    alike: bool
    """As that of a `Reading`."""

    @property
    def complete(self) -> bool:
        """As that of a `Reading`; once acknowledgements are answered, false where letters may come again."""

    @property
    def position(self) -> int:
        """That of the last letter delivered."""

    @property
    def seen(self) -> int:
        """Letters that count towards the limit: those delivered, and those that had to stay."""

    def batches(self) -> Iterator[Batch]:
        """Return the letters of this queue; positions count them from 1, but for those that stay."""

    def acknowledge(self, position: int) -> None:
        """Tell that the letters of this queue up to `position` are durable."""

    def settled_position(self) -> int:
        """Return how far the broker has answered the acknowledgements of this queue."""

    def close(self) -> None:
        """Give back what was not acknowledged in this queue. Never raises."""


Kept = Callable[[], Sequence[str]]
"""What the broker's counts say against a drain that has ended."""
WhyIncomplete = Callable[[str, int], Sequence[str]]
"""Of a queue that gave less than it has, and the letters of it that we hold: sentences for the user."""


class Scan(Protocol):
    """One queue that is to be read."""

    @property
    def queue(self) -> str:
        """Its name."""

    @property
    def depth(self) -> int | None:
        """Letters that were there when the whole reading began; None is not known."""

    @property
    def topology(self) -> Mapping[str, Any]:
        """What could be learned of this queue (JSON-able)."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for the user about this queue."""

    def begin(self, limit: int | None) -> Part:
        """Connect and start reading at most `limit` letters. Raises BrokerError."""


@dataclass(frozen=True)
class QueueScan:
    """See `Scan`; `open` connects for this queue, to read at most so many letters."""

    queue: str
    depth: int | None
    topology: Mapping[str, Any]
    open: Callable[[int | None], Part]
    notes: Sequence[str] = ()

    def begin(self, limit: int | None) -> Part:
        """Connect."""
        return self.open(limit)


class ChainOfTwo:
    """Read one queue by one reading, which shows what it can, and then the rest by another: a `Reading` and a
    `Part`. Positions run on. The first lives until the end: what it holds does not come again."""

    unique_ids = False
    settles_at_once = resumes = alike = False

    def __init__(
        self, first: QueueReading[Any, Any], then: Callable[[int | None], Part], goal: int | None
    ) -> None:
        """`goal`: letters to be read in all; `then` is told how many are left."""
        self.snapshot, self.topology, self.notes = first.snapshot, first.topology, first.notes
        self.marks_redelivered = first.marks_redelivered
        self._first, self._then, self._goal = first, then, goal
        self._rest: Part | None = None
        self.complete = False

    @property
    def position(self) -> int:
        """That of the last letter delivered."""
        return self._first.position + (self._rest.position if self._rest else 0)

    @property
    def seen(self) -> int:
        """See `Part`."""
        return self._first.seen + (self._rest.seen if self._rest else 0)

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        first = self._first
        yield from first.batches()
        left = None if self._goal is None else self._goal - first.seen
        self.complete = left == 0
        if left == 0:
            return
        self._rest = rest = self._then(left)
        for batch in rest.batches():
            first.stay_alive()
            yield batch._replace(position=first.position + batch.position)
        is_first_whole = first.seen == first.position and (first.complete or left is not None)
        self.complete = is_first_whole and rest.complete

    def acknowledge(self, position: int) -> None:
        """Give each reading its share of the position."""
        own = self._first.position
        self._first.alike = self.alike
        self._first.acknowledge(min(position, own))
        if self._rest is not None and position > own:
            self._rest.alike = self.alike
            self._rest.acknowledge(position - own)

    def settled_position(self) -> int:
        """See `Part`: up to the first letter whose acknowledgement is not answered."""
        settled = self._first.settled_position()
        if self._rest is None or settled < self._first.position:
            return settled
        return settled + self._rest.settled_position()

    def close(self) -> None:
        """Close both."""
        self._first.close()
        if self._rest is not None:
            self._rest.close()


def scan_twice(
    scan: Scan, first: Callable[[int | None], QueueReading[Any, Any]], then: Callable[[int | None], Part]
) -> QueueScan:
    """Make a scan that reads the same queue in two ways; each is told how many letters are left."""

    def begin(limit: int | None) -> ChainOfTwo:
        goal = goal_of(scan.depth, limit)
        return ChainOfTwo(first(goal), then, goal)

    return QueueScan(scan.queue, scan.depth, scan.topology, begin, scan.notes)


class ChainReading:
    """Positions run on from one queue to the next. A queue's connection is closed as soon as nothing is
    owed to it any more: after a copy at once, after a drain when its acknowledgements are answered."""

    unique_ids = False
    marks_redelivered = alike = False
    settles_at_once = resumes = False

    def __init__(
        self,
        scans: Sequence[Scan],
        mode: Mode,
        limit: int | None,
        shared: Mapping[str, Any] | None = None,
        why_incomplete: WhyIncomplete | None = None,
        kept: Kept | None = None,
        unread: Mapping[str, DlqError] | None = None,
    ) -> None:
        """`shared` is topology that belongs to no queue alone; `unread` are queues that cannot be read, and
        why: they are named, and the reading is not complete. Raises the first of these errors where no
        queue is left."""
        self._unread = dict(unread or {})
        self._members = len(scans) + len(self._unread)
        self._raise_if_none_is_left()
        self._why_incomplete, self._kept = why_incomplete, kept
        self._scans, self._mode, self._limit = scans, mode, limit
        self._open: list[tuple[int, Part]] = []
        depths = [scan.depth for scan in scans if scan.depth is not None]
        self.snapshot = sum(depths) if len(depths) == len(scans) else None
        self.notes: Sequence[str] = [
            *_names(scans),
            *dict.fromkeys(n for scan in scans for n in scan.notes),
            *(_unread_note(queue, why) for queue, why in self._unread.items()),
        ]
        self.topology: Mapping[str, Any] = {**(shared or {}), "queues": [scan.topology for scan in scans]}
        self.complete = False
        self._settled = 0

    def batches(self) -> Iterator[Batch]:
        """Yield one queue after another. Positions go on over the queues."""
        base = seen = 0
        staying: list[Batch] = []
        complete = not self._unread
        for scan in self._scans:
            if scan.depth == 0:
                continue
            rest = None if self._limit is None else self._limit - seen
            if rest == 0:
                break
            reading: Part | None = None
            try:
                reading = scan.begin(rest)
                self._open.append((base, reading))
                for batch in reading.batches():
                    if batch.stays:
                        staying.append(batch)
                    else:
                        yield batch._replace(position=base + batch.position)
            except OF_ONE_MEMBER as error:
                if reading is not None:
                    self._give_up(reading, error)
                self._pass_over(scan.queue, error)
                complete = False
                continue
            base += reading.position
            seen += reading.seen
            complete = complete and reading.complete
            if not reading.complete and self._why_incomplete is not None:
                held = reading.seen - (reading.position if self._mode == "drain" else 0)
                self.notes = [*self.notes, *self._why_incomplete(scan.queue, held)]
            if self._mode == "copy":
                reading.close()
                self._open.pop()
        yield from _at_the_end(base, staying)
        self.complete = complete

    def _give_up(self, reading: Part, error: DlqError) -> None:
        """Close the reading that was opened last. Raises the error where it has given letters, which are not
        acknowledged yet."""
        if reading.position:
            raise error
        self._open.pop()
        reading.close()

    def _pass_over(self, queue: str, error: DlqError) -> None:
        """Go on without a queue. Raises the error where it is all that there is."""
        self._unread[queue] = error
        self._raise_if_none_is_left()
        self.notes = [*self.notes, _unread_note(queue, error)]

    def _raise_if_none_is_left(self) -> None:
        if self._unread and len(self._unread) >= self._members:
            raise next(iter(self._unread.values()))

    def acknowledge(self, position: int) -> None:
        """Give each open reading its share of the position."""
        for base, reading in self._open:
            reading.alike = self.alike
            if position > base:
                reading.acknowledge(min(position - base, reading.position))

    def settled_position(self) -> int:
        """Ask the readings in order, up to the first that still waits; those before it are closed."""
        for base, reading in list(self._open):
            self._settled = max(self._settled, base + reading.settled_position())
            if self._settled < base + reading.position or reading is self._open[-1][1]:
                break
            reading.close()
            self._open.remove((base, reading))
        self.complete = self.complete and all(reading.complete for _, reading in self._open)
        return self._settled

    def close(self) -> None:
        """Close all that are still open."""
        for _, reading in self._open:
            reading.close()
        if self._kept is not None:
            self.notes = [*self.notes, *self._kept()]


def _at_the_end(position: int, staying: Sequence[Batch]) -> Iterator[Batch]:
    """Yield what stays, behind all that is settled and in segments of its own, which never are."""
    for batch in staying:
        yield Batch((), position)
        position += len(batch.records)
        yield batch._replace(position=position)


def _unread_note(queue: str, why: object) -> str:
    """Return which queue of a pattern is left out, and why."""
    return f"not read: {for_terminal(queue)}: {why}"


def _names(scans: Sequence[Scan]) -> list[str]:
    """Return which queues a pattern has found, with their letters, where it is more than one."""
    if len(scans) < 2:
        return []
    depths = ["" if scan.depth is None else f" ({scan.depth:,})" for scan in scans]
    named = [f"{for_terminal(scan.queue)}{depth}" for scan, depth in zip(scans, depths, strict=True)]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return [f"{len(scans)} queues: {', '.join(named[:_NAMED])}{more}"]
