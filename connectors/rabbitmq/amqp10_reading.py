"""One scan of a queue that holds letters which AMQP 0-9-1 cannot carry: those by AMQP 1.0, the rest as ever.

RabbitMQ closes every 0-9-1 connection that would get a letter of that kind (541), and over AMQP 1.0 it leaves
out what 0-9-1 headers hold (tables and arrays). So all letters are looked at by AMQP 1.0, and held; those
that it alone carries are captured, the others are released, which counts as no failure, and read over 0-9-1.
Thus a letter has one form, and one record id, whatever lies beside it. What is captured is held until it is
accepted, by a copy until its end, so that no 0-9-1 connection meets it.

The reader is our own, because python-qpid-proton (0.40) has no wheels for Linux: each host would need a
compiler and OpenSSL's headers, for nine performatives.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pika import spec

from dlq.connectors.amqp10 import frames, message
from dlq.connectors.amqp10.session import Delivery, Session
from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.links import LinkLostError
from dlq.connectors.rabbitmq.amqp.link import Link
from dlq.connectors.rabbitmq.amqp10_records import is_carried_by_0_9_1, record_maker
from dlq.connectors.rabbitmq.consumer import IDLE_SECONDS, RabbitReading
from dlq.connectors.rabbitmq.topology import version_of
from dlq.core.errors import ConnectionLost, DlqError, PoisonMessage
from dlq.core.record import Record

_FIRST_LETTERS, _MOST_LETTERS, _MOST_BYTES = 64, 500, 16 * 2**20
"""Letters that are asked for at once: the broker has them all in its memory."""
_YIELD_SECONDS = 1.0
_WAIT_SECONDS = 0.2
_RETURN_SECONDS = 2.0
_POLL_SECONDS = 0.01
_ANSWER_SECONDS = 60.0
NOTE = "letters that RabbitMQ cannot convert to AMQP 0-9-1 are read by AMQP 1.0"
UNSEEN = "nothing in it shows over AMQP 1.0 why: see the broker's log"


_Run = tuple[int, int]
"""The first and the last of some numbers in a row."""


class TwoWayReading:
    """A pull of one queue, by the contract of `Reading`. Positions count first what AMQP 1.0 brings."""

    unique_ids = False
    settles_at_once = False

    def __init__(
        self,
        link: Link,
        session: Session,
        request: ReadRequest,
        snapshot: int,
        topology: Mapping[str, Any],
        notes: Sequence[str],
    ) -> None:
        """`link` waits until it is needed."""
        self.snapshot: int | None = snapshot
        self.complete = False
        self.topology: Mapping[str, Any] = topology
        self.notes: Sequence[str] = [*notes, NOTE]
        self._link, self._session, self._request = link, session, request
        self._queue = request.source.queue or ""
        self._wanted = snapshot if request.limit is None else min(snapshot, request.limit)
        self._make = record_maker(request, link.server_version)
        self._version = version_of(link.server_version)
        self._kept: list[int] = []
        self._others: list[_Run] = []
        """Numbers of letters that AMQP 1.0 has brought and that were not released yet."""
        self._open: list[Record] = []
        self._open_bytes = self._seen = self._seen_bytes = 0
        self._yielded = time.monotonic()
        self._acknowledged = self._unanswered = 0
        self._has_looked = False
        self._rest: RabbitReading | None = None

    @property
    def position(self) -> int:
        """The position of the last letter received."""
        return len(self._kept) + (self._rest.position if self._rest else 0)

    @property
    def seen(self) -> int:
        """See `dlq.connectors.chain.Part`: every letter is delivered."""
        return self.position

    def batches(self) -> Iterator[Batch]:
        """See `Reading.batches`."""
        with self._losses():
            yield from self._look_at_all()
            yield self._batch()
            self._settle(self._others, frames.RELEASED)
            self._others = []
            self._has_looked = True
            self._let_go()
        yield from self._read_the_rest()

    def _look_at_all(self) -> Iterator[Batch]:
        source = self._session.attach(frames.RECEIVER, f"/queues/{quote(self._queue, safe='')}")
        heard = time.monotonic()
        while (left := self._wanted - self._seen) > 0 and time.monotonic() - heard < IDLE_SECONDS:
            self._session.ask(source, min(self._at_once(), left))
            while not source.drained:
                self._session.turn(_WAIT_SECONDS)
                for delivery in self._session.take():
                    heard = time.monotonic()
                    self._sort(delivery)
                    if self._is_due():
                        yield self._batch()
                if time.monotonic() - heard > _ANSWER_SECONDS:
                    raise LinkLostError(f"no answer within {_ANSWER_SECONDS:g} s")
                if time.monotonic() - self._yielded >= _YIELD_SECONDS:
                    self._link.receive(0)  # and a heartbeat, so that it is there when it is needed
                    yield self._batch()
            if time.monotonic() - heard >= _WAIT_SECONDS:
                time.sleep(_WAIT_SECONDS)

    def _at_once(self) -> int:
        """By the sizes seen so far."""
        if not self._seen:
            return _FIRST_LETTERS
        return max(1, min(_MOST_LETTERS, _MOST_BYTES * self._seen // max(1, self._seen_bytes)))

    def _sort(self, delivery: Delivery) -> None:
        """What cannot be read as a message is left to 0-9-1, which will say so."""
        self._seen, self._seen_bytes = self._seen + 1, self._seen_bytes + len(delivery.message)
        try:
            parts = message.parts(message.split(delivery.message)[0])
            record = None if is_carried_by_0_9_1(parts, self._version) else self._make(delivery.message)
        except ValueError:
            record = None
        if record is None:
            _append(self._others, delivery.number)
        else:
            self._kept.append(delivery.number)
            self._open.append(record)
            self._open_bytes += record.body_size

    def _is_due(self) -> bool:
        request = self._request
        return len(self._open) >= request.batch_rows or self._open_bytes >= request.batch_bytes

    def _batch(self) -> Batch:
        records, self._open, self._open_bytes = self._open, [], 0
        self._yielded = time.monotonic()
        return Batch(records, len(self._kept))

    def _let_go(self) -> None:
        """When nothing is held any more. A queue with a single active consumer gives 0-9-1 nothing before."""
        if self._has_looked and self._request.mode == "drain" and self._acknowledged == len(self._kept):
            self._await_answers()
            self._session.close()

    def _read_the_rest(self) -> Iterator[Batch]:
        base, rest = len(self._kept), self._wanted - len(self._kept)
        if rest == 0:
            self.complete = True
            return
        self._wait_until_ready(rest)
        request = replace(self._request, limit=rest, careful=False)
        self._rest = RabbitReading(self._link, request, rest, self.topology, ())
        try:
            for batch in self._rest.batches():
                self._stay_alive()
                yield batch._replace(position=base + batch.position)
        except PoisonMessage as error:
            raise PoisonMessage(f"{error}; {UNSEEN}") from error
        self.complete = self._rest.complete

    def _wait_until_ready(self, letters: int) -> None:
        """What was released is back, unless somebody else has taken it or the queue delays it."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while self._ready() < letters and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _ready(self) -> int:
        with self._losses():
            asked = spec.Queue.Declare(queue=self._queue, passive=True)
            return int(self._link.call(asked, spec.Queue.DeclareOk).message_count)

    def _stay_alive(self) -> None:
        if not self._session.dead:
            with self._losses():
                self._session.turn(0)

    def acknowledge(self, position: int) -> None:
        """See `Reading.acknowledge`."""
        own = min(position, len(self._kept))
        if own > self._acknowledged:
            with self._losses():
                self._settle(_runs(self._kept[self._acknowledged : own]), frames.ACCEPTED)
                self._acknowledged = own
                self._let_go()
        if self._rest is not None and position > len(self._kept):
            self._rest.acknowledge(position - len(self._kept))

    def _settle(self, runs: Iterable[_Run], outcome: int) -> None:
        for first, last in runs:
            self._session.settle(first, last, outcome)
            self._unanswered += last - first + 1

    def _await_answers(self) -> None:
        while self._unanswered > 0:
            self._unanswered -= sum(one.last - one.first + 1 for one in self._session.outcomes())
            if self._unanswered > 0:
                self._session.turn(_ANSWER_SECONDS, must=True)

    def settled(self) -> int:
        """See `Reading.settled`: both outcomes, and then a question to the queue, are answered."""
        with self._losses():
            self._await_answers()
        if self._rest is not None:
            return len(self._kept) + self._rest.settled()
        self._ready()
        return self._acknowledged

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except LinkLostError as error:
            where = f"source {self._request.source.name}"
            raise ConnectionLost(f"{where}: the connection ended: {error}") from error

    def close(self) -> None:
        """Give back what was not acknowledged, unrejected."""
        if not self._session.dead:
            with contextlib.suppress(LinkLostError, DlqError):
                held = _runs(self._kept[self._acknowledged :])
                self._settle(sorted([*self._others, *held]), frames.RELEASED)
                self._await_answers()
            self._session.close()
        (self._rest or self._link).close()


def _runs(numbers: Iterable[int]) -> list[_Run]:
    runs: list[_Run] = []
    for number in numbers:
        _append(runs, number)
    return runs


def _append(runs: list[_Run], number: int) -> None:
    if runs and runs[-1][1] == number - 1:
        runs[-1] = runs[-1][0], number
    else:
        runs.append((number, number))
