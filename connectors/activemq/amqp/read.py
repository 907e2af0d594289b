"""One scan of an Artemis queue: the messages that came by AMQP 1.0 by it, as they are, and then the others by
STOMP.

Artemis keeps both kinds in one queue. To STOMP it converts those of AMQP 1.0, and over one that it cannot
convert (a property of type UUID, or a time; a map that holds a list) it removes the consumer without a word
(2.56.0), and counts a delivery for each letter in flight. So a selector keeps the kinds apart: only messages
of AMQP 1.0 have the property `_AMQ_AD`, in which Artemis keeps their address.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlq.connectors.activemq.amqp.link import open_session
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.read import Scan
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import mapping, string, symbol
from dlq.connectors.amqp10.link.session import Delivery, Session
from dlq.connectors.amqp10.link.transactions import Transactions
from dlq.connectors.amqp10.read import HeldFirst, Holding
from dlq.connectors.base import Batch
from dlq.connectors.net.links import LinkLostError, name_losses
from dlq.connectors.queue import POLL, until_acknowledged
from dlq.core.errors import DlqError
from dlq.core.record import Record

OF_AMQP, OTHERS = "_AMQ_AD IS NOT NULL", "_AMQ_AD IS NULL"
"""Selectors."""
_FILTER = symbol("apache.org:selector-filter:string")
_SELECTED = mapping([_FILTER + b"\0" + _FILTER + string(OF_AMQP)])
_QUIET_SECONDS = 0.5
"""A large message is sent behind Artemis' word that there is no more for now, so it is asked again."""
_WAIT_SECONDS, _YIELD_SECONDS = 0.2, 1.0


@dataclass(frozen=True)
class ScanOfBoth:
    """A queue that is read by two ways; `others` is that of what AMQP 1.0 is not needed for, and knows the
    queue."""

    others: Scan

    @property
    def queue(self) -> str:
        """Its name."""
        return self.others.queue

    @property
    def depth(self) -> int | None:
        """Letters of both kinds."""
        return self.others.depth

    @property
    def topology(self) -> Mapping[str, Any]:
        """See `Scan`."""
        return self.others.topology

    @property
    def notes(self) -> Sequence[str]:
        """See `Scan`."""
        return self.others.notes


@dataclass(frozen=True)
class Amqp10Scan(ScanOfBoth):
    """How a queue is read by both."""

    broker: ActiveMQBroker
    address: str
    make: Callable[[bytes], Record]

    def begin(self, limit: int | None) -> "Amqp10Reading":
        """Connect. Raises BrokerError."""
        return Amqp10Reading(self, limit)


class Amqp10Reading(HeldFirst):
    """See `dlq.connectors.chain.Part`. Positions count first what AMQP 1.0 brings."""

    def __init__(self, scan: Amqp10Scan, limit: int | None) -> None:
        self._scan, self._limit = scan, limit
        bounds = [bound for bound in (scan.depth, limit) if bound is not None]
        self._goal = min(bounds) if bounds else None
        """More than the snapshot is not read, however many letters come meanwhile."""
        self._session: Session = open_session(scan.broker)
        self._place = scan.broker.name
        self.complete = False
        self._held = Holding(scan.others.request)
        self._covered = 0
        self._transactions: Transactions | None = None
        self._committing: tuple[int, int] | None = None
        """The number of a commit, and how far it reaches."""

    @property
    def seen(self) -> int:
        """See `Part`."""
        return self._held.seen + (self._rest.seen if self._rest else 0)

    def batches(self) -> Iterator[Batch]:
        """See `Part`. A drain goes on by STOMP when what AMQP 1.0 has brought is acknowledged."""
        with self._losses():
            yield from self._look()
            yield self._held.batch()
            if self._scan.others.request.mode == "drain":
                yield from self._until_acknowledged()
        own = self.seen
        rest = None if self._limit is None else self._limit - own
        depth = None if self._scan.depth is None else max(0, self._scan.depth - own)
        if rest == 0 or (rest is not None and rest < 0):
            self.complete = True
            return
        reading = replace(self._scan.others, depth=depth).begin(rest)
        yield from self.batches_of_the_rest(reading)
        self.complete = reading.complete and self._held.seen == self._held.position

    def _look(self) -> Iterator[Batch]:
        source = self._session.attach(frames.RECEIVER, self._scan.address, _SELECTED)
        yielded = heard = time.monotonic()
        while self._goal is None or self.seen < self._goal:
            self._session.ask(source, self._at_once())
            asked = time.monotonic()
            while not source.is_answered:
                self._session.turn(_WAIT_SECONDS)
                if time.monotonic() - asked > self._session.patience:
                    raise LinkLostError(f"no answer within {self._session.patience:g} s")
                if time.monotonic() - yielded > _YIELD_SECONDS:
                    yielded = time.monotonic()
                    yield self._held.batch()
            for delivery in self._session.take():
                heard = time.monotonic()
                self._take(delivery)
                if self._held.is_due() or time.monotonic() - yielded > _YIELD_SECONDS:
                    yielded = time.monotonic()
                    yield self._held.batch()
            if time.monotonic() - heard > _QUIET_SECONDS:
                return
            if heard < asked:
                time.sleep(POLL)

    def _at_once(self) -> int:
        most = self._held.most_at_once()
        return most if self._goal is None else min(most, self._goal - self.seen)

    def _take(self, delivery: Delivery) -> None:
        try:
            self._held.keep(delivery, self._scan.make(delivery.message))
        except ValueError as error:
            self._held.leave(delivery, f"a message of AMQP 1.0 that cannot be read: {error}")

    def _until_acknowledged(self) -> Iterator[Batch]:
        for batch in until_acknowledged(lambda: self._held.owed, self._held.position):
            self._stay_alive()
            yield batch

    def acknowledge(self, position: int) -> None:
        """In a transaction, whose commit the broker answers when it is on its disk."""
        if durable := self._held.take_durable(position):
            with self._losses():
                self._await_commit()
                transactions = self._transactions = self._transactions or Transactions(self._session)
                transaction = transactions.begin()
                state = frames.in_transaction(transaction, frames.ACCEPTED)
                for first, last in durable:
                    self._session.settle_unanswered(first, last, state)
                self._committing = transactions.end(transaction), min(position, self._held.position)
        self.acknowledge_the_rest(position)

    def _await_commit(self) -> None:
        if self._committing is not None and self._transactions is not None:
            number, reaches = self._committing
            outcome = self._transactions.outcome_of(number)
            if outcome.code != frames.ACCEPTED:
                raise LinkLostError(f"the broker did not take the acknowledgements: {outcome.detail}")
            self._covered, self._committing = reaches, None

    def settled_position(self) -> int:
        """How far commits are answered, and then acknowledgements by STOMP."""
        with self._losses():
            self._await_commit()
        if self._rest is not None and self._covered == self._held.position:
            return self._covered + self._rest.settled_position()
        return self._covered

    def _losses(self) -> contextlib.AbstractContextManager[None]:
        return name_losses(self._place, "the connection of AMQP 1.0")

    def close(self) -> None:
        """Give back what was not acknowledged, which counts no delivery, and leave."""
        with contextlib.suppress(LinkLostError, DlqError):
            if not self._session.dead:
                for first, last in self._held.take_rest():
                    self._session.settle_unanswered(first, last, frames.state(frames.RELEASED))
        self._session.close()
        if self._rest is not None:
            self._rest.close()
