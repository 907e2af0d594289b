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

from dlq.connectors.activemq.amqp10_session import opened
from dlq.connectors.activemq.description import ActiveMQBroker
from dlq.connectors.activemq.stomp_consumer import POLL, UNACKED_END, Scan, StompReading
from dlq.connectors.amqp10 import frames
from dlq.connectors.amqp10.session import Delivery, Session
from dlq.connectors.amqp10.transactions import Transactions
from dlq.connectors.amqp10.values import mapping, string, symbol
from dlq.connectors.base import Batch, Skipped
from dlq.connectors.links import LinkLostError
from dlq.core.errors import ConnectionLost, DlqError
from dlq.core.record import Record

OF_AMQP, OTHERS = "_AMQ_AD IS NOT NULL", "_AMQ_AD IS NULL"
"""Selectors."""
_FILTER = symbol("apache.org:selector-filter:string")
_SELECTED = mapping([_FILTER + b"\0" + _FILTER + string(OF_AMQP)])
_FIRST_LETTERS, _MOST_LETTERS, _MOST_BYTES = 64, 500, 16 * 2**20
"""Letters that are asked for at once."""
_QUIET_SECONDS = 0.5
"""A large message is sent behind Artemis' word that there is no more for now, so it is asked again."""
_WAIT_SECONDS, _ANSWER_SECONDS, _YIELD_SECONDS = 0.2, 60.0, 1.0


@dataclass(frozen=True)
class Amqp10Scan:
    """How a queue is read by both; `others` is the way of what AMQP 1.0 is not needed for."""

    broker: ActiveMQBroker
    address: str
    others: Scan
    make: Callable[[bytes], Record]

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

    def begin(self, limit: int | None) -> "Amqp10Reading":
        """Connect. Raises BrokerError."""
        return Amqp10Reading(self, limit)


class Amqp10Reading:
    """See `dlq.connectors.chain.Part`. Positions count first what AMQP 1.0 brings."""

    def __init__(self, scan: Amqp10Scan, limit: int | None) -> None:
        self._scan, self._limit = scan, limit
        self._session: Session = opened(scan.broker)
        self._place = scan.broker.name
        self.complete = False
        self._kept: list[int] = []
        self._stay: list[int] = []
        """Numbers of letters that are held to be archived, and of those that cannot be read."""
        self._records: list[Record] = []
        self._skipped: list[Skipped] = []
        self._bytes = self._acknowledged = self._covered = 0
        self._taken_bytes = 0
        self._transactions: Transactions | None = None
        self._committing: tuple[int, int] | None = None
        """The number of a commit, and how far it reaches."""
        self._rest: StompReading | None = None

    @property
    def position(self) -> int:
        """That of the last letter delivered."""
        return len(self._kept) + (self._rest.position if self._rest else 0)

    @property
    def seen(self) -> int:
        """See `Part`."""
        return len(self._kept) + len(self._stay) + (self._rest.seen if self._rest else 0)

    def batches(self) -> Iterator[Batch]:
        """See `Part`. A drain goes on by STOMP when what AMQP 1.0 has brought is acknowledged."""
        with self._losses():
            yield from self._look()
            yield self._batch()
            if self._scan.others.request.mode == "drain":
                yield from self._until_acknowledged()
        own = self.seen
        rest = None if self._limit is None else self._limit - own
        depth = None if self._scan.depth is None else max(0, self._scan.depth - own)
        if rest == 0 or (rest is not None and rest < 0):
            self.complete = True
            return
        self._rest = replace(self._scan.others, depth=depth).begin(rest)
        for batch in self._rest.batches():
            self._stay_alive()
            yield batch._replace(position=len(self._kept) + batch.position)
        self.complete = self._rest.complete and not self._stay

    def _look(self) -> Iterator[Batch]:
        source = self._session.attach(frames.RECEIVER, self._scan.address, _SELECTED)
        yielded = heard = time.monotonic()
        while self._limit is None or self.seen < self._limit:
            self._session.ask(source, self._at_once())
            asked = time.monotonic()
            while not source.is_answered:
                self._session.turn(_WAIT_SECONDS)
                if time.monotonic() - asked > _ANSWER_SECONDS:
                    raise LinkLostError(f"no answer within {_ANSWER_SECONDS:g} s")
                if time.monotonic() - yielded > _YIELD_SECONDS:
                    yielded = time.monotonic()
                    yield Batch((), len(self._kept) - len(self._records))
            for delivery in self._session.take():
                heard = time.monotonic()
                self._take(delivery)
                if self._is_due():
                    yielded = time.monotonic()
                    yield self._batch()
            if time.monotonic() - heard > _QUIET_SECONDS:
                return
            if heard < asked:
                time.sleep(POLL)

    def _at_once(self) -> int:
        """By the sizes seen so far."""
        most = _FIRST_LETTERS
        if self.seen:
            most = max(1, min(_MOST_LETTERS, _MOST_BYTES * self.seen // max(1, self._taken_bytes)))
        return most if self._limit is None else min(most, self._limit - self.seen)

    def _take(self, delivery: Delivery) -> None:
        self._taken_bytes += len(delivery.message)
        try:
            record = self._scan.make(delivery.message)
        except ValueError as error:
            self._stay.append(delivery.number)
            reason = f"a message of AMQP 1.0 that cannot be read: {error}"
            self._skipped.append(Skipped(f"number {self.seen} of AMQP 1.0", reason))
            return
        self._kept.append(delivery.number)
        self._records.append(record)
        self._bytes += record.body_size

    def _is_due(self) -> bool:
        request = self._scan.others.request
        return len(self._records) >= request.batch_rows or self._bytes >= request.batch_bytes

    def _batch(self) -> Batch:
        records, skipped = self._records, self._skipped
        self._records, self._skipped, self._bytes = [], [], 0
        return Batch(records, len(self._kept), skipped=skipped)

    def _until_acknowledged(self) -> Iterator[Batch]:
        began = time.monotonic()
        while self._acknowledged < len(self._kept) and time.monotonic() - began < UNACKED_END:
            self._stay_alive()
            time.sleep(POLL)
            yield Batch((), len(self._kept))

    def _stay_alive(self) -> None:
        if not self._session.dead:
            with self._losses():
                self._session.turn(0)

    def acknowledge(self, position: int) -> None:
        """In a transaction, whose commit the broker answers when it is on its disk."""
        own = min(position, len(self._kept))
        if own > self._acknowledged:
            with self._losses():
                self._await_commit()
                transactions = self._transactions = self._transactions or Transactions(self._session)
                transaction = transactions.begin()
                state = frames.in_transaction(transaction, frames.ACCEPTED)
                for first, last in runs(self._kept[self._acknowledged : own]):
                    self._session.settle_unanswered(first, last, state)
                self._committing = transactions.end(transaction), own
            self._acknowledged = own
        if self._rest is not None and position > len(self._kept):
            self._rest.acknowledge(position - len(self._kept))

    def _await_commit(self) -> None:
        if self._committing is not None and self._transactions is not None:
            number, reaches = self._committing
            outcome = self._transactions.outcome_of(number)
            if outcome.code != frames.ACCEPTED:
                raise LinkLostError(f"the broker did not take the acknowledgements: {outcome.detail}")
            self._covered, self._committing = reaches, None

    def settled(self) -> int:
        """How far commits are answered, and then acknowledgements by STOMP."""
        with self._losses():
            self._await_commit()
        if self._rest is not None and self._covered == len(self._kept):
            return self._covered + self._rest.settled()
        return self._covered

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        try:
            yield
        except LinkLostError as error:
            raise ConnectionLost(f"{self._place}: the connection of AMQP 1.0 ended: {error}") from error

    def close(self) -> None:
        """Give back what was not acknowledged, which counts no delivery, and leave."""
        with contextlib.suppress(LinkLostError, DlqError):
            if not self._session.dead:
                for first, last in runs(sorted([*self._stay, *self._kept[self._acknowledged :]])):
                    self._session.settle_unanswered(first, last, frames.state(frames.RELEASED))
        self._session.close()
        if self._rest is not None:
            self._rest.close()


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each row of numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
