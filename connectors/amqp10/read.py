"""The letters of a queue that a session holds for a reading: how many are asked for at once, which of them
are archived, and which only wait to be given back."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from dlq.connectors.amqp10.link.session import Delivery, Session
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.connectors.chain import Part
from dlq.connectors.queue import Owed
from dlq.core.record import Record

_FIRST_LETTERS, _MOST_LETTERS, _MOST_BYTES = 64, 500, 16 * 2**20
"""Letters that are asked for at once: the broker has them all in its memory."""

Run = tuple[int, int]
"""The first and the last of some numbers of deliveries in a row."""


class Holding:
    """Positions count what is archived; `seen` counts what came."""

    def __init__(self, request: ReadRequest) -> None:
        self._request = request
        self.owed = Owed[int]()
        """By the numbers of their deliveries."""
        self._others: list[Run] = []
        """Letters that are not archived, and are held so that they do not come again."""
        self.position = self.seen = 0
        self._records: list[Record] = []
        self._skipped: list[Skipped] = []
        self._bytes = self._seen_bytes = 0

    def most_at_once(self) -> int:
        """Letters to ask for, by the sizes seen so far."""
        if not self.seen:
            return _FIRST_LETTERS
        return max(1, min(_MOST_LETTERS, _MOST_BYTES * self.seen // max(1, self._seen_bytes)))

    def keep(self, delivery: Delivery, record: Record) -> None:
        """A letter that is archived, and acknowledged when it is durable."""
        self._count(delivery)
        self.position += 1
        self.owed.add(self.position, delivery.number)
        self._records.append(record)
        self._bytes += record.body_size

    def leave(self, delivery: Delivery, why: str | None = None) -> None:
        """A letter that stays in its queue, and why that is said."""
        self._count(delivery)
        _append(self._others, delivery.number)
        if why is not None:
            self._skipped.append(Skipped(f"number {self.seen} of AMQP 1.0", why))

    def _count(self, delivery: Delivery) -> None:
        self.seen += 1
        self._seen_bytes += len(delivery.message)

    def is_due(self) -> bool:
        """Whether a batch is full."""
        return len(self._records) >= self._request.batch_rows or self._bytes >= self._request.batch_bytes

    def batch(self) -> Batch:
        """What was kept and left since the last one."""
        records, skipped = self._records, self._skipped
        self._records, self._skipped, self._bytes = [], [], 0
        return Batch(records, self.position, skipped=skipped)

    def take_durable(self, position: int) -> list[Run]:
        """What is to be acknowledged when all up to there is durable."""
        return _runs(number for _, number in self.owed.take(position))

    def take_others(self) -> list[Run]:
        """What is to be given back because it is not archived."""
        others, self._others = self._others, []
        return others

    def take_rest(self) -> list[Run]:
        """What is to be given back when the reading ends."""
        return sorted([*self.take_others(), *self.take_durable(self.position)])


class HeldFirst:
    """A reading that gives what a session holds, and then the rest by another protocol, as `_rest`. Positions
    run on from one to the other."""

    _session: Session
    _held: Holding
    _rest: Part | None = None

    @property
    def position(self) -> int:
        """That of the last letter delivered."""
        return self._held.position + (self._rest.position if self._rest else 0)

    def batches_of_the_rest(self, rest: Part) -> Iterator[Batch]:
        """While the session, which holds letters, stays alive."""
        self._rest = rest
        for batch in rest.batches():
            self._stay_alive()
            yield batch._replace(position=self._held.position + batch.position)

    def acknowledge_the_rest(self, position: int) -> None:
        """What of the letters up to there came by the other protocol."""
        if self._rest is not None and position > self._held.position:
            self._rest.acknowledge(position - self._held.position)

    def _stay_alive(self) -> None:
        if not self._session.dead:
            with self._losses():
                self._session.turn(0)

    def _losses(self) -> AbstractContextManager[None]:
        """Names the connection that is lost."""
        raise NotImplementedError


def _runs(numbers: Iterable[int]) -> list[Run]:
    """Each row of rising numbers."""
    found: list[Run] = []
    for number in numbers:
        _append(found, number)
    return found


def _append(found: list[Run], number: int) -> None:
    if found and found[-1][1] == number - 1:
        found[-1] = found[-1][0], number
    else:
        found.append((number, number))
