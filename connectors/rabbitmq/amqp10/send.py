"""The way back for letters that only AMQP 1.0 carries, and a plan's letters of both kinds in their order.

What an outcome means here:

    accepted               every queue that it was routed to has it      confirmed
    released               no queue is bound for it                      returned
    rejected               its queue is full, and rejects what comes     refused
    rejected, modified     else a queue failed, or one of several is full: others may have it
                                                                         in_doubt
    the session ends over  alone in flight: the broker had not routed it refused
    a right                else nothing is known of those in flight      in_doubt
    silence, a lost socket the same                                      in_doubt

What else would go by a way that was refused is left out, and the rest goes.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from urllib.parse import quote

from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.link.session import MOST_LINKS, Link, Login, Outcome, Session
from dlq.connectors.base import UNSENT_SECONDS, Outgoing, Sent, Target, Writing, keep_no_mark
from dlq.connectors.base import Outcome as Means
from dlq.connectors.local.credentials import log_in
from dlq.connectors.net import outbound
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rabbitmq.amqp091.link.channel import connect_first
from dlq.connectors.rabbitmq.amqp091.send import OFFENDER, RabbitPublisher, connection_name
from dlq.connectors.rabbitmq.link import connecting, named_parameters, place_of, refusal_10
from dlq.connectors.rabbitmq.look.topology import may_be_full, rejects_when_full
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.envelope import Way
from dlq.connectors.rabbitmq.republish import message_to_send
from dlq.connectors.rabbitmq.send import Ways
from dlq.connectors.sending import TwoWayPublisher, WindowedPublisher
from dlq.core.errors import AccessDenied, ConnectionLost, NotFound
from dlq.core.runtime import patience
from dlq.core.text import for_terminal
from dlq.core.values import units

_UNOPENED = (
    "a limit of connections, or no access to the virtual host? The broker's log says it, AMQP 1.0 does not"
)
"""RabbitMQ (4.3.6) logs what is wrong with an OPEN and ends the connection without a word."""
_MEANS: Mapping[int, tuple[Means, str | None]] = {
    frames.ACCEPTED: ("confirmed", None),
    frames.RELEASED: ("returned", "released by the broker: no queue is bound for it"),
    frames.REJECTED: ("in_doubt", "rejected by the broker: a queue failed, so it may have been stored"),
    frames.MODIFIED: ("in_doubt", "modified by the broker: a queue failed, so it may have been stored"),
}
_FULL: tuple[Means, str] = "refused", "rejected by the broker: its queue is full and rejects what comes"
_UNKNOWN: tuple[Means, str] = "in_doubt", "an outcome that AMQP 1.0 has not"


def address(exchange: str, routing_key: str) -> str:
    """Return where a link leads to (RabbitMQ's addresses, version 2)."""
    exchange, routing_key = quote(exchange, safe=""), quote(routing_key, safe="")
    if not exchange:
        return f"/queues/{routing_key}"
    return f"/exchanges/{exchange}/{routing_key}" if routing_key else f"/exchanges/{exchange}"


def open_session(broker: RabbitBroker, name: str = "dlq", unsent_seconds: float | None = None) -> Session:
    """Return a session of AMQP 1.0, by its name in the broker's lists; `unsent_seconds`: see
    `outbound.guard`. Raises BrokerError."""
    return log_in(broker, partial(_connect, broker, name, unsent_seconds))


def _connect(broker: RabbitBroker, name: str, unsent_seconds: float | None) -> Session:
    with connecting(broker):
        opened, chosen = connect_first(named_parameters(broker, name))
        if unsent_seconds is not None:
            outbound.guard(opened, unsent_seconds)
        who = chosen.credentials
        host, properties = f"vhost:{chosen.virtual_host}", chosen.client_properties or {}
        beat, patience = int(chosen.heartbeat), chosen.stack_timeout
        timeout = units.seconds(broker.timeout)
        login = Login(
            who.username, who.password, host, beat, properties, patience, timeout, _UNOPENED,
            f"{chosen.host}:{chosen.port}", f"brokers.{broker.name}.url",
        )  # fmt: skip
        return Session(opened, login, partial(refusal_10, broker=broker))


class Amqp10Publisher(WindowedPublisher):
    """See `dlq.connectors.base.Publisher`. A target that is new is attached to when nothing is in flight: the
    broker ends the whole session over one that it refuses. `route` says where a target is published to."""

    silent_seconds = 60.0

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        ways: Ways | None = None,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        """Connect; raises BrokerError. `unsent_seconds`: see `Connector.publisher`."""
        super().__init__(window, place_of(broker))
        self._broker, self._unsent_seconds = broker, unsent_seconds
        self._ways = ways or Ways(broker, plan)
        self._name = connection_name(plan)
        self._session = self._open_session()
        self._links: dict[str, Link] = {}
        """By address."""
        self._numbers: dict[int, int] = {}
        """Number of the delivery that is not answered -> the caller's."""
        self._missing: dict[str, str] = {}
        rejecting = cache(partial(rejects_when_full, broker))
        self._may_be_full = cache(partial(may_be_full, broker, rejecting))
        """Asked anew for each of the broker's answers, as by 0-9-1."""

    def _open_session(self) -> Session:
        session = open_session(self._broker, self._name, self._unsent_seconds)
        session.writing = self.announce
        return session

    def put(self, letter: Outgoing) -> None:
        """Put a letter to the socket, when the broker takes it."""
        try:
            way = self._ways.way_of(letter)
            if why := self._ways.why_barred(way):
                self.answers.append(Sent(letter.number, "unsent", why))
                return
            encoded = message_to_send(letter.record, letter.provenance, letter.keep_headers, way.copies)
        except ValueError as error:
            raise ValueError(f"it cannot be encoded: {error}") from error
        self._ways.make(letter, way)
        place = address(way.exchange, way.key)
        try:
            link = self._link_to(place)
        except AccessDenied as error:
            self._leave_out(way, error)
            raise ValueError(f"never sent: {error}") from error
        if link is None:
            self.answers.append(Sent(letter.number, "returned", self._missing[place]))
            return
        if len(encoded) > link.most_bytes:
            raise ValueError(f"{len(encoded)} bytes are more than the broker takes ({link.most_bytes})")
        self._session.wait_for_window()
        self.announce([letter.number])
        self._numbers[self._session.send(link, encoded)] = letter.number

    def goes_alone(self, letter: Outgoing) -> bool:
        """Return whether a letter goes alone, as the first one over a link does: the broker looks at the
        right to a topic when a letter comes."""
        try:
            way = self._ways.way_of(letter)
        except ValueError:
            return False  # `put` says why it is refused
        return address(way.exchange, way.key) not in self._links

    def poll(self, wait: float) -> None:
        """Take what the broker has answered."""
        if self._numbers:
            self._turn(wait)

    def _link_to(self, place: str) -> Link | None:
        """Return the link to a place, with credit; None where nothing is there."""
        if place not in self._links and place not in self._missing:
            self._wait_until(lambda: not self._numbers, "it does not answer")
            if len(self._links) == MOST_LINKS:
                for link in self._links.values():
                    self._session.detach(link)
                self._links.clear()
            self._attach(place)
        found = self._links.get(place)
        if found is not None:
            self._wait_until(lambda: found.credit > 0, "it takes no letters (an alarm?)")
        return found

    def _wait_until(self, is_so: Callable[[], bool], complaint: str) -> None:
        """Take answers meanwhile."""
        since, known = time.monotonic(), len(self.answers)
        while not is_so():
            if time.monotonic() - since > self.silent_seconds:
                raise LinkLostError(f"{complaint} for {self.silent_seconds:.0f} s")
            self._turn(patience.FETCH)
            if len(self.answers) > known:
                since, known = time.monotonic(), len(self.answers)

    def _attach(self, place: str) -> None:
        """Attach to a place. Over one that is not there the broker ends the session, so the rest goes by
        another."""
        try:
            self._links[place] = self._session.attach(frames.SENDER, place)
        except NotFound as error:
            self._missing[place] = str(error)
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._links.clear()
        self._session.cut()
        self._session = self._open_session()

    def _leave_out(self, way: Way, error: AccessDenied) -> None:
        """Leave a way out. Raises the error where letters are in flight, or where it may be about something
        else."""
        told = OFFENDER.search(str(error))
        if told is None or self._numbers:
            raise error
        self._ways.bar(way.exchange, None if told["key"] is None else way.key, str(error))
        self._begin_anew()

    def _turn(self, wait: float) -> None:
        try:
            self._session.turn(wait)
        except AccessDenied as error:
            self._take_outcomes()
            if not self.is_alone() or not self._numbers:
                raise
            [letter] = self.in_flight.values()
            self._numbers.clear()
            self._leave_out(self._ways.way_of(letter), error)
            self.answers.append(Sent(letter.number, "refused", str(error)))
        self._take_outcomes()

    def _take_outcomes(self) -> None:
        self._may_be_full.cache_clear()
        doubts = [self._note_outcome(outcome) for outcome in self._session.outcomes() if outcome.of_sent]
        if doubt := next(filter(None, doubts), None):  # what comes behind it would be in doubt, too
            raise ConnectionLost(f"{self._place}: {doubt}")

    def _note_outcome(self, outcome: Outcome) -> str | None:
        """Note the outcome of a letter; return what is in doubt about it, if anything."""
        number = self._numbers.pop(outcome.number)
        target = self.in_flight[number].target
        means, why = self._meaning(outcome.code, target)
        detail = f"{why}: {for_terminal(outcome.detail)}" if outcome.detail else why
        self.answers.append(Sent(number, means, detail))
        if means != "in_doubt":
            return None
        self._ways.note_failure(target.name)
        return detail

    def _meaning(self, code: int, target: Target) -> tuple[Means, str | None]:
        if code == frames.REJECTED and target.kind == "queue" and self._may_be_full(target.name):
            return _FULL
        return _MEANS.get(code, _UNKNOWN)

    def cut(self) -> None:
        """Cut the connection: the kernel drops what it has not sent."""
        self._session.cut()

    def end(self) -> None:
        """End the session in order, unless it is dead."""
        self._session.close()


class RabbitTwoWays(TwoWayPublisher):
    """By 0-9-1, and what AMQP 1.0 alone carries by it, when there is any."""

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        ways: Ways,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        """Connect; raises BrokerError."""
        self._ways = ways
        super().__init__(
            RabbitPublisher(broker, plan, window, ways, unsent_seconds=unsent_seconds),
            partial(Amqp10Publisher, broker, plan, window, ways, unsent_seconds),
            lambda letter: message.is_block(letter.record.raw_properties),
        )

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """See `Publisher.publish`. What was made for it goes when all is answered."""
        yield from super().publish(outgoing, writing)
        self._ways.remove()
