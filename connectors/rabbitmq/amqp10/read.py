"""One scan of a queue that holds letters which AMQP 0-9-1 cannot carry: those by AMQP 1.0, the rest as ever.

RabbitMQ closes every 0-9-1 connection that would get a letter of that kind (541), and over AMQP 1.0 it leaves
out what 0-9-1 headers hold (tables and arrays). So all letters are looked at by AMQP 1.0, and held; those
that it alone carries are captured, the others are released, which counts as no failure, and read over 0-9-1.
Thus a letter has one form, and one record id, whatever lies beside it. What is captured is held until it is
accepted, by a copy until its end, so that no 0-9-1 connection meets it.

The reader is our own, because python-qpid-proton (0.40) has no wheels for Linux: each host would need a
compiler and OpenSSL's headers, for nine performatives.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.link.session import Delivery, Session
from dlq.connectors.amqp10.read import SessionReading, runs
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.connectors.net.links import name_losses
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.read import RabbitReading, keeps_marks
from dlq.connectors.rabbitmq.look.topology import version_of
from dlq.connectors.rabbitmq.records.amqp10 import is_carried_by_0_9_1, record_maker
from dlq.core.errors import PoisonMessage
from dlq.core.record import Record
from dlq.core.runtime import patience

NOTE = "letters that RabbitMQ cannot convert to AMQP 0-9-1 are read by AMQP 1.0"
UNSEEN = "nothing in it shows over AMQP 1.0 why: see the broker's log"


class UncarriedReading(SessionReading):
    """Read the letters that AMQP 1.0 alone carries."""

    quiet_seconds = patience.REPLY

    def __init__(
        self,
        link: Link,
        session: Session,
        request: ReadRequest,
        depth: int,
        topology: Mapping[str, Any],
        notes: Sequence[str],
    ) -> None:
        """`link` waits until it is needed."""
        losses = partial(name_losses, f"source {request.source.name}")
        super().__init__(session, request, depth, request.limit, losses)
        self.topology, self.notes = topology, [*notes, NOTE]
        self.marks_redelivered = keeps_marks(topology)
        self._link, self._queue = link, request.source.queue or ""
        self.address = f"/queues/{quote(self._queue, safe='')}"
        self._rest: RabbitReading | None = None
        self._make_record = record_maker(request, link.server_version)
        self._version = version_of(link.server_version)
        self._proven = 0
        self._has_looked = False

    def receive(self, wait: float) -> Sequence[Delivery]:
        """Return what has come, and keep the other connection."""
        self._link.receive(0)
        return super().receive(wait)

    def sort(self, letter: Delivery, taken: list[Record], _skipped: list[Skipped]) -> None:
        """Take what 0-9-1 does not carry. What is no message is left to it, which will say so."""
        self.count(letter)
        try:
            parts = message.parts(message.split(letter.message)[0])
            record = None if is_carried_by_0_9_1(parts, self._version) else self._make_record(letter.message)
        except ValueError:
            record = None
        if record is None:
            self._others.append(letter.number)
        else:
            self.take(taken, record, letter.number)

    def finish(self) -> Iterator[Batch]:
        """Release the others, which come again."""
        self.give_back(self._others)
        self._others, self.seen = [], self.position
        self._has_looked = True
        self._let_go()
        yield from ()

    def _let_go(self) -> None:
        """Let the link go when nothing is held any more. A queue with a single active consumer gives 0-9-1
        nothing before. A quorum queue answers the end of a link behind the commit of all outcomes, which it
        answers itself before."""
        if self._has_looked and self._request.mode == "drain" and not self._owed:
            self._session.await_answers()
            self._session.detach(self._source)
            self._session.close()

    def read_the_rest(self, letters: int) -> RabbitReading:
        """Read by 0-9-1 when what was released is back, unless somebody else has taken it or the queue delays
        it."""
        deadline = time.monotonic() + patience.GIVEN_BACK
        with self._losses():
            while self._count_ready() < letters and time.monotonic() < deadline:
                time.sleep(patience.BLINK)
        request = replace(self._request, limit=letters, careful=False)
        self._rest = _Rest(self._link, request, letters, self.topology, ())
        return self._rest

    def _count_ready(self) -> int:
        return int(self._link.find_queue(self._queue).message_count)

    def acknowledge(self, position: int) -> None:
        """See `Reading`; where some are alike, all at once."""
        if not self.alike or (self._has_looked and position == self.position):
            super().acknowledge(position)

    def remove(self, numbers: Sequence[int]) -> None:
        """Accept them."""
        for first, last in runs(numbers):
            self._session.settle(first, last, frames.ACCEPTED)
        self._let_go()

    def give_back(self, numbers: Iterable[int]) -> None:
        """Release them, and wait for the answers."""
        for first, last in runs(numbers):
            self._session.settle(first, last, frames.RELEASED)
        self._session.await_answers()

    def await_removal(self) -> None:
        """Wait until both outcomes, and then a question to the queue, are answered."""
        self._session.await_answers()
        if self._removed > self._proven:
            self._count_ready()
            self._proven = self._removed

    def close(self) -> None:
        """See `Part`; the link, too, where nobody else has it."""
        super().close()
        if self._rest is None:
            self._link.close()


class _Rest(RabbitReading):
    """Read what 0-9-1 carries, as far as AMQP 1.0 shows it."""

    def batches(self) -> Iterator[Batch]:
        """See `Reading`."""
        try:
            yield from super().batches()
        except PoisonMessage as error:
            raise PoisonMessage(f"{error}; {UNSEEN}") from error
