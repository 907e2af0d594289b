"""A queue read by AMQP 1.0, credit after credit. What came stays with the session, so that it does not come
again, until it is acknowledged or given back."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress

from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.link.session import Delivery, Link, Session
from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.queue import POLL, QueueReading
from dlq.core.errors import DlqError
from dlq.core.record import Record

_FIRST_LETTERS, _MOST_LETTERS, _MOST_BYTES = 64, 500, 16 * 2**20
"""Letters that are asked for at once: the broker has them all in its memory."""


class SessionReading(QueueReading[Delivery, Record]):
    """Read a queue over a session, which is its own. Tags are the numbers of deliveries."""

    quiet_seconds: float
    """Without a letter, while the broker answers each credit: then there are no more."""
    address: str
    wanted: Sequence[bytes] = ()
    """What is read: see `Session.attach`."""
    _source: Link

    def __init__(
        self,
        session: Session,
        request: ReadRequest,
        depth: int | None,
        limit: int | None,
        losses: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`losses` names the connection that is lost."""
        super().__init__(request, depth, limit)
        self._owes = True  # in a copy, too: what it holds is given back
        self._session, self._losses = session, losses
        self._others: list[int] = []
        """Numbers of letters that are not archived."""
        self._seen_bytes = 0
        self._heard = 0.0
        """When a letter came, or was asked for."""

    def give_back(self, numbers: Iterable[int]) -> None:
        """Release letters, which counts no delivery."""
        raise NotImplementedError

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        with self._losses():
            yield from super().batches()

    def consume(self) -> None:
        """Attach a link, and give the first credit."""
        self._source = self._session.attach(frames.RECEIVER, self.address, *self.wanted)
        self._ask()

    def _ask(self) -> None:
        most = _FIRST_LETTERS
        if self.seen:
            most = max(1, min(_MOST_LETTERS, _MOST_BYTES * self.seen // max(1, self._seen_bytes)))
        self._session.ask(self._source, most if self._goal is None else min(most, self._goal - self.seen))
        self._heard = time.monotonic()

    def receive(self, wait: float) -> Sequence[Delivery]:
        """Return letters of one credit after another."""
        if self._source.is_answered:
            self._ask()
        self._session.turn(wait)
        came = self._session.take()
        if came:
            self._heard = time.monotonic()
        elif not self._source.is_answered and time.monotonic() - self._heard > self._session.patience:
            raise LinkLostError(f"no answer within {self._session.patience:g} s")
        return came

    def wake(self) -> None:
        """Ask some more times before that is taken for the end."""
        if self._source.is_answered:
            self._ended = self._silence.seconds > self.quiet_seconds
            time.sleep(POLL)

    def _is_over(self) -> bool:
        return self._is_reached()

    def size_of(self, arrived: Delivery) -> int:
        """Return the bytes of the message."""
        return len(arrived.message)

    def count(self, delivery: Delivery) -> None:
        """Count a letter that came."""
        self.seen += 1
        self._seen_bytes += len(delivery.message)

    def make(self, taken: list[Record]) -> Sequence[Record]:
        """Return the records, which are made while letters are sorted."""
        return taken

    def acknowledge(self, position: int) -> None:
        """See `Reading`."""
        with self._losses():
            super().acknowledge(position)

    def settled_position(self) -> int:
        """See `Reading`."""
        with self._losses():
            return super().settled_position()

    def stay_alive(self) -> None:
        """Answer the broker, and beat the heart."""
        if not self._session.dead:
            with self._losses():
                self._session.turn(0)

    def close(self) -> None:
        """Give back what was not acknowledged, and leave."""
        with suppress(LinkLostError, DlqError):
            if not self._session.dead:
                self.give_back(sorted([*self._others, *self._owed]))
        self._session.close()


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each row of rising numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
