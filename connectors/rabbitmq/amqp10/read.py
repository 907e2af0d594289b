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

from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.link.session import Delivery, Session
from dlq.connectors.amqp10.read import HeldFirst, Holding, Run
from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.net.links import LinkLostError, name_losses
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.read import IDLE_SECONDS, RabbitReading
from dlq.connectors.rabbitmq.look.topology import version_of
from dlq.connectors.rabbitmq.records.amqp10 import is_carried_by_0_9_1, record_maker
from dlq.core.errors import DlqError, PoisonMessage

_YIELD_SECONDS = 1.0
_WAIT_SECONDS = 0.2
_RETURN_SECONDS = 2.0
_POLL_SECONDS = 0.01
NOTE = "letters that RabbitMQ cannot convert to AMQP 0-9-1 are read by AMQP 1.0"
UNSEEN = "nothing in it shows over AMQP 1.0 why: see the broker's log"


class TwoWayReading(HeldFirst):
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
        self._held = Holding(request)
        self._yielded = time.monotonic()
        self._acknowledged = self._unanswered = 0
        self._has_looked = False

    @property
    def seen(self) -> int:
        """See `dlq.connectors.chain.Part`: every letter is delivered."""
        return self.position

    def batches(self) -> Iterator[Batch]:
        """See `Reading.batches`."""
        with self._losses():
            yield from self._look_at_all()
            yield self._batch()
            self._settle(self._held.take_others(), frames.RELEASED)
            self._has_looked = True
            self._let_go()
        yield from self._read_the_rest()

    def _look_at_all(self) -> Iterator[Batch]:
        source = self._session.attach(frames.RECEIVER, f"/queues/{quote(self._queue, safe='')}")
        heard = time.monotonic()
        while (left := self._wanted - self._held.seen) > 0 and time.monotonic() - heard < IDLE_SECONDS:
            self._session.ask(source, min(self._held.most_at_once(), left))
            while not source.drained:
                self._session.turn(_WAIT_SECONDS)
                for delivery in self._session.take():
                    heard = time.monotonic()
                    self._sort(delivery)
                    if self._held.is_due():
                        yield self._batch()
                if time.monotonic() - heard > self._session.patience:
                    raise LinkLostError(f"no answer within {self._session.patience:g} s")
                if time.monotonic() - self._yielded >= _YIELD_SECONDS:
                    self._link.receive(0)  # and a heartbeat, so that it is there when it is needed
                    yield self._batch()
            if time.monotonic() - heard >= _WAIT_SECONDS:
                time.sleep(_WAIT_SECONDS)

    def _sort(self, delivery: Delivery) -> None:
        """What cannot be read as a message is left to 0-9-1, which will say so."""
        try:
            parts = message.parts(message.split(delivery.message)[0])
            record = None if is_carried_by_0_9_1(parts, self._version) else self._make(delivery.message)
        except ValueError:
            record = None
        if record is None:
            self._held.leave(delivery)
        else:
            self._held.keep(delivery, record)

    def _batch(self) -> Batch:
        self._yielded = time.monotonic()
        return self._held.batch()

    def _let_go(self) -> None:
        """When nothing is held any more. A queue with a single active consumer gives 0-9-1 nothing before."""
        if self._has_looked and self._request.mode == "drain" and not self._held.owed:
            self._await_answers()
            self._session.close()

    def _read_the_rest(self) -> Iterator[Batch]:
        rest = self._wanted - self._held.position
        if rest == 0:
            self.complete = True
            return
        self._wait_until_ready(rest)
        request = replace(self._request, limit=rest, careful=False)
        reading = RabbitReading(self._link, request, rest, self.topology, ())
        try:
            yield from self.batches_of_the_rest(reading)
        except PoisonMessage as error:
            raise PoisonMessage(f"{error}; {UNSEEN}") from error
        self.complete = reading.complete

    def _wait_until_ready(self, letters: int) -> None:
        """What was released is back, unless somebody else has taken it or the queue delays it."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while self._ready() < letters and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _ready(self) -> int:
        with self._losses():
            asked = spec.Queue.Declare(queue=self._queue, passive=True)
            return int(self._link.call(asked, spec.Queue.DeclareOk).message_count)

    def acknowledge(self, position: int) -> None:
        """See `Reading.acknowledge`."""
        if durable := self._held.take_durable(position):
            with self._losses():
                self._settle(durable, frames.ACCEPTED)
                self._acknowledged = min(position, self._held.position)
                self._let_go()
        self.acknowledge_the_rest(position)

    def _settle(self, runs: Iterable[Run], outcome: int) -> None:
        for first, last in runs:
            self._session.settle(first, last, outcome)
            self._unanswered += last - first + 1

    def _await_answers(self) -> None:
        while self._unanswered > 0:
            self._session.wait_until(self._has_an_answer)

    def _has_an_answer(self) -> bool:
        outcomes = self._session.outcomes()
        self._unanswered -= len(outcomes)
        return bool(outcomes) or self._unanswered <= 0

    def settled_position(self) -> int:
        """See `Reading.settled_position`: both outcomes, and then a question to the queue, are answered."""
        with self._losses():
            self._await_answers()
        if self._rest is not None:
            return self._held.position + self._rest.settled_position()
        self._ready()
        return self._acknowledged

    def _losses(self) -> contextlib.AbstractContextManager[None]:
        return name_losses(f"source {self._request.source.name}")

    def close(self) -> None:
        """Give back what was not acknowledged, unrejected."""
        if not self._session.dead:
            with contextlib.suppress(LinkLostError, DlqError):
                self._settle(self._held.take_rest(), frames.RELEASED)
                self._await_answers()
            self._session.close()
        (self._rest or self._link).close()
