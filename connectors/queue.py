"""The engine of readings that drain a queue: how much is taken, what ends that, and what is owed for it.

The broker gives letters as far as it was granted them, and waits for their acknowledgements, which are held
back until the caller has made the letters durable. A protocol's reading is a `QueueReading` that says how
letters are asked for, received and sorted, and how those that are durable are removed.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.core.record import Record
from dlq.core.runtime import patience

_Arrived = TypeVar("_Arrived")
"""What comes from the broker."""
_Letter = TypeVar("_Letter")
"""What is made of that, if it is a letter that can be taken."""
_Tag = TypeVar("_Tag")

_BATCH_ROWS = 1000
POLL = 0.05
_SLOWEST = 2**14
"""Bytes of a long letter that come in a second, at least."""


class IdleTimer:
    """`seconds` for which no letter came, nor a part of one in the time that it may take: who drips one, or
    says what is none, is silent."""

    def __init__(self) -> None:
        self.hear()

    def hear(self) -> None:
        """Begin the time of silence anew."""
        self.seconds = self._waited = 0.0
        self._part = 0

    def wait(self, seconds: float, unfinished: int) -> None:
        """Note that no letter came for some more seconds; of the next one there are so many bytes."""
        self._waited += seconds
        comes = unfinished != self._part and self._waited < patience.ENDLESS + unfinished / _SLOWEST
        self._part = unfinished
        self.seconds = 0.0 if comes else self.seconds + seconds


class Unsettled(Generic[_Tag]):
    """The letters of a reading that are to be acknowledged, each once, when they are durable: their
    positions, and by which tag the broker knows them."""

    def __init__(self) -> None:
        self._open: deque[tuple[int, _Tag]] = deque()

    def add(self, position: int, tag: _Tag) -> None:
        """Note that a letter came; positions do not fall."""
        self._open.append((position, tag))

    def take(self, position: int) -> list[tuple[int, _Tag]]:
        """Return what is owed up to there: it is acknowledged now, or given back, and not owed any more."""
        taken = []
        while self._open and self._open[0][0] <= position:
            taken.append(self._open.popleft())
        return taken

    def __iter__(self) -> Iterator[_Tag]:
        """Return the tags of what is not durable yet."""
        return (tag for _, tag in self._open)

    def __bool__(self) -> bool:
        """Return whether the caller holds letters that are not durable yet."""
        return bool(self._open)


def goal_of(depth: int | None, limit: int | None) -> int | None:
    """Return how many letters are to be read; None: all that come."""
    return min((bound for bound in (depth, limit) if bound is not None), default=None)


def until_acknowledged(owes: Callable[[], object], position: int) -> Iterator[Batch]:
    """Yield batches without a letter, as long as the caller holds letters that have to be acknowledged first,
    but not for ever."""
    for _ in patience.tries(patience.UNACKED, POLL):
        if not owes():
            return
        yield Batch((), position)


class QueueReading(Generic[_Arrived, _Letter]):
    """One scan of one queue, as a `Reading` and as a `chain.Part`. A protocol's subclass overrides what
    raises NotImplementedError, and what else differs there."""

    unique_ids = False
    marks_redelivered = alike = False
    settles_at_once = resumes = False

    def __init__(
        self, request: ReadRequest, depth: int | None, limit: int | None, browse: bool = False
    ) -> None:
        """`browse`: letters are looked at, and the broker says when there are no more."""
        self.snapshot = depth
        self.topology: Mapping[str, Any] = {"queue": request.source.queue}
        self.notes: Sequence[str] = ()
        self._request, self._browse = request, browse
        self._goal = goal_of(depth, limit)
        self._longest = patience.IDLE if depth is None else patience.STALLED
        self._arrived: deque[_Arrived] = deque()
        self._owed = Unsettled[Any]()
        self._owes = request.mode == "drain"
        self._silence = IdleTimer()
        self._ended = self.complete = False
        self.seen = self.position = self._removed = 0

    def consume(self) -> None:
        """Ask for letters, no more unacknowledged than the window; nothing where each `receive` asks."""

    def receive(self, wait: float) -> Iterable[_Arrived]:
        """Return what has come, waiting at most so many seconds for it. It sets `_ended` where the broker
        says that there are no more."""
        raise NotImplementedError

    def size_of(self, arrived: _Arrived) -> int:
        """Return bytes of its content."""
        raise NotImplementedError

    def sort(self, arrived: _Arrived, taken: list[_Letter], skipped: list[Skipped]) -> None:
        """Count what came in `seen`; what can be taken goes to `take`, what has to stay to `skipped`."""
        raise NotImplementedError

    def take(self, taken: list[_Letter], letter: _Letter, tag: object) -> None:
        """Give a letter the next position; in a drain it is owed, by its tag."""
        self.position += 1
        taken.append(letter)
        if self._owes:
            self._owed.add(self.position, tag)

    def unfinished_bytes(self) -> int:
        """Return bytes of what has not come wholly."""
        return 0

    def make(self, taken: list[_Letter]) -> Sequence[Record]:
        """Return the records of some letters."""
        raise NotImplementedError

    def remove(self, tags: Sequence[Any]) -> None:
        """Acknowledge the letters of these tags, in their order, without waiting: they are durable."""
        raise NotImplementedError

    def await_removal(self) -> None:
        """Wait until the broker has answered the last `remove`, where it answers later."""

    def wake(self) -> None:
        """Make the broker look for more: nothing came."""

    def prepare(self) -> Iterator[Batch]:
        """Yield what has to happen before the next letters are taken."""
        yield from ()

    def finish(self) -> Iterator[Batch]:
        """Yield what has to happen when no more are taken."""
        yield from ()

    def hear(self) -> None:
        """Begin the time of silence anew."""
        self._silence.hear()

    def acknowledge(self, position: int) -> None:
        """See `Reading`. Each letter once."""
        if owed := self._owed.take(position):
            self.remove([tag for _, tag in owed])
            self._removed = owed[-1][0]
            self.hear()

    def settled_position(self) -> int:
        """See `Reading`."""
        self.await_removal()
        return self._removed

    def stay_alive(self) -> None:
        """Keep the connection while letters are read elsewhere."""

    def close(self) -> None:
        """See `Reading`."""

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        if self._goal != 0:
            self.consume()
            while not self._is_over():
                yield from self.prepare()
                yield self.next_batch()
            yield from self.finish()
        is_over = not self._browse and not self.unfinished_bytes()
        self.complete = is_over if self._goal is None else self.seen >= self._goal

    def next_batch(self) -> Batch:
        """Return letters until a batch is full or the broker pauses."""
        request, taken, skipped, size = self._request, list[_Letter](), list[Skipped](), 0
        until, before = time.monotonic() + patience.YIELD, self.seen
        while len(taken) < min(request.batch_rows, _BATCH_ROWS) and size < request.batch_bytes:
            if time.monotonic() > until or self.is_paused() or not (self._arrived or self._wait()):
                break
            arrived = self._arrived.popleft()
            size += self.size_of(arrived)
            self.sort(arrived, taken, skipped)
        if self.seen > before:
            self.hear()
        return Batch(self.make(taken) if taken else (), self.position, skipped=skipped)

    def _wait(self) -> bool:
        asked = time.monotonic()
        self._arrived.extend(self.receive(POLL))
        if not self._arrived:
            self.wake()
        self._silence.wait(time.monotonic() - asked, self.unfinished_bytes())
        return bool(self._arrived)

    def is_paused(self) -> bool:
        """Return whether nothing more is taken for now."""
        return self._is_reached()

    def _is_reached(self) -> bool:
        return self._ended or (self._goal is not None and self.seen >= self._goal)

    def _is_over(self) -> bool:
        longest = patience.UNACKED if self._owed else self._longest
        return self._is_reached() or self._silence.seconds > longest
