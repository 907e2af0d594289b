"""The way back for letters that only AMQP 1.0 carries, and a plan's letters of both kinds in their order.

What an outcome means here:

    accepted               every queue that it was routed to has it      confirmed
    released               no queue is bound for it                      returned
    rejected, modified     a queue refused it (full, or it failed)       refused
    silence, a lost socket nothing is known of those in flight           in_doubt
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from urllib.parse import quote

from dlq.connectors import outbound
from dlq.connectors.amqp10 import frames, message
from dlq.connectors.amqp10.session import MOST_LINKS, Link, Login, Outcome, Session
from dlq.connectors.base import UNSENT_SECONDS, Outgoing, Publisher, Sent, Target, Writing, unmarked
from dlq.connectors.base import Outcome as Means
from dlq.connectors.links import LinkLostError
from dlq.connectors.rabbitmq.amqp.link import connected
from dlq.connectors.rabbitmq.connection import as_our_error, named, place_of, refusal_10
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.publisher import RabbitPublisher, connection_name
from dlq.connectors.rabbitmq.republishing import address_of, message_to_send
from dlq.connectors.two_ways import TwoWayPublisher
from dlq.core.errors import ConnectionLost, DlqError, NotFound
from dlq.core.text import for_terminal

_UNOPENED = (
    "a limit of connections, or no access to the virtual host? The broker's log says it, AMQP 1.0 does not"
)
"""RabbitMQ (4.3.6) logs what is wrong with an OPEN and ends the connection without a word."""
_PATIENCE = 0.2
_MEANS: Mapping[int, tuple[Means, str | None]] = {
    frames.ACCEPTED: ("confirmed", None),
    frames.RELEASED: ("returned", "released by the broker: no queue is bound for it"),
    frames.REJECTED: ("refused", "rejected by the broker: a target queue is full and rejects, or it failed"),
    frames.MODIFIED: ("refused", "modified by the broker: a target queue failed"),
}
_UNKNOWN: tuple[Means, str] = "in_doubt", "an outcome that AMQP 1.0 has not"
_ENDED = "the connection ended while it was sent"


def address(exchange: str, routing_key: str) -> str:
    """Where a link leads to (RabbitMQ's addresses, version 2)."""
    exchange, routing_key = quote(exchange, safe=""), quote(routing_key, safe="")
    if not exchange:
        return f"/queues/{routing_key}"
    return f"/exchanges/{exchange}/{routing_key}" if routing_key else f"/exchanges/{exchange}"


def opened(broker: RabbitBroker, name: str = "dlq", unsent_seconds: float | None = None) -> Session:
    """A session of AMQP 1.0, by its name in the broker's lists; `unsent_seconds`: see `outbound.guard`.
    Raises BrokerError."""
    try:
        opened, chosen = connected(named(broker, name))
        if unsent_seconds is not None:
            outbound.guard(opened, unsent_seconds)
        who = chosen.credentials
        host, properties = f"vhost:{chosen.virtual_host}", chosen.client_properties or {}
        beat, patience = int(chosen.heartbeat), chosen.stack_timeout
        login = Login(who.username, who.password, host, beat, properties, patience, _UNOPENED)
        return Session(opened, login, partial(refusal_10, broker=broker))
    except (OSError, LinkLostError) as error:
        raise as_our_error(error, broker) from error


class Amqp10Publisher:
    """See `dlq.connectors.base.Publisher`. A target that is new is attached to when nothing is in flight: the
    broker ends the whole session over one that it refuses. `route` says where a target is published to."""

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        route: Callable[[Target], tuple[str, str]] = address_of,
        silent_seconds: float = 60.0,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        """Connect; raises BrokerError. `unsent_seconds`: see `Connector.publisher`."""
        self._broker, self._window, self._silent_seconds = broker, window, silent_seconds
        self._name, self._route = connection_name(plan), route
        self._unsent_seconds = unsent_seconds
        self._writing: Writing = unmarked
        self._session = self._opened()
        self._links: dict[Target, Link] = {}
        self._open: dict[int, int] = {}
        """Number of the delivery -> the caller's."""
        self._missing: dict[Target, str] = {}
        self._answers: list[Sent] = []
        self._failure: DlqError | None = None

    def _opened(self) -> Session:
        session = opened(self._broker, self._name, self._unsent_seconds)
        session.writing = self._writing
        return session

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = unmarked) -> Iterator[Sent]:
        """See `Publisher.publish`. Raises ConnectionLost, or what made the broker end the session."""
        self._writing = self._session.writing = writing
        over = False
        while self._failure is None and not (over and not self._open):
            while not over and self._failure is None and self._has_room():
                letter = next(outgoing, None)
                over = letter is None
                if letter is not None:
                    self._give(letter)
            if self._failure is None and self._open:
                self._waiting_for(self._turn)
            yield from self._taken()
        yield from self._taken()
        if self._failure is not None:
            raise self._failure

    def _has_room(self) -> bool:
        """The broker may give less credit than a window: then answers come while it is filled, and count."""
        return len(self._open) + len(self._answers) < self._window

    def _taken(self) -> list[Sent]:
        answers, self._answers = self._answers, []
        return answers

    def _give(self, letter: Outgoing) -> None:
        try:
            encoded = message_to_send(letter.record, letter.provenance, letter.keep_headers)
        except ValueError as error:
            self._answers.append(Sent(letter.number, "refused", f"it cannot be encoded: {error}"))
            return
        way = letter.target in self._missing or self._waiting_for(lambda: self._make_way(letter.target))
        if not way:
            self._answers.append(Sent(letter.number, "in_doubt", _ENDED))
            return
        link = self._links.get(letter.target)
        if link is None:
            self._answers.append(Sent(letter.number, "returned", self._missing[letter.target]))
        elif len(encoded) > link.most_bytes:
            reason = f"{len(encoded)} bytes are more than the broker takes ({link.most_bytes})"
            self._answers.append(Sent(letter.number, "refused", reason))
        elif not self._waiting_for(lambda: self._send(letter.number, link, encoded)):
            self._answers.append(Sent(letter.number, "in_doubt", _ENDED))

    def _send(self, number: int, link: Link, encoded: bytes) -> None:
        self._session.wait_for_window()
        self._writing([number])
        self._open[self._session.send(link, encoded)] = number

    def _make_way(self, target: Target) -> None:
        """A link to the target, with credit."""
        if target not in self._links:
            while self._open:
                self._turn()
            if len(self._links) == MOST_LINKS:
                for link in self._links.values():
                    self._session.detach(link)
                self._links.clear()
            self._attach(target)
        waited = time.monotonic()
        while target in self._links and self._links[target].credit == 0:
            self._turn()
            if time.monotonic() - waited > self._silent_seconds:
                raise LinkLostError(f"it takes no letters for {self._silent_seconds:.0f} s (an alarm?)")

    def _attach(self, target: Target) -> None:
        """Over a target that is not there the broker ends the session, so the rest goes by another."""
        try:
            self._links[target] = self._session.attach(frames.SENDER, address(*self._route(target)))
        except NotFound as error:
            self._missing[target] = str(error)
            self._links.clear()
            self._session.cut()
            self._session = self._opened()

    def _waiting_for(self, step: Callable[[], None]) -> bool:
        """Do it; what ends the session is the failure. Whether it was done."""
        try:
            step()
        except LinkLostError as error:
            self._fail(ConnectionLost(f"{place_of(self._broker)}: the connection ended: {error}"))
        except DlqError as error:
            self._fail(error)
        return self._failure is None

    def _turn(self) -> None:
        """Take what the broker has answered; at least something has to come in time."""
        waited = time.monotonic()
        while not self._session.turn(_PATIENCE):
            if time.monotonic() - waited > self._silent_seconds:
                raise LinkLostError(f"no answer to {len(self._open)} letters in flight")
        for outcome in self._session.outcomes():
            self._answered(outcome)

    def _answered(self, outcome: Outcome) -> None:
        means, why = _MEANS.get(outcome.code, _UNKNOWN)
        detail = f"{why}: {for_terminal(outcome.detail)}" if outcome.detail else why
        for number in [number for number in self._open if outcome.first <= number <= outcome.last]:
            self._answers.append(Sent(self._open.pop(number), means, detail))

    def _fail(self, failure: DlqError) -> None:
        """Nothing more is known of what is in flight."""
        self._failure = failure
        unknown = "the broker's answer never came"
        self._answers += [Sent(number, "in_doubt", unknown) for number in self._open.values()]
        self._open.clear()
        self._session.cut()

    def close(self) -> None:
        """See `Publisher.close`. With letters in flight (the caller gave up) the socket is cut."""
        if self._open:
            self._session.cut()
        self._session.close()


def two_ways(
    broker: RabbitBroker,
    plan: str,
    window: int,
    route: Callable[[Target], tuple[str, str]] = address_of,
    unsent_seconds: float = UNSENT_SECONDS,
) -> Publisher:
    """By 0-9-1, and what AMQP 1.0 alone carries by it, when there is any. Connects; raises BrokerError."""
    by_1_0 = partial(Amqp10Publisher, broker, plan, window, route, unsent_seconds=unsent_seconds)
    return TwoWayPublisher(
        RabbitPublisher(broker, plan, window, route, unsent_seconds=unsent_seconds),
        by_1_0,
        lambda letter: message.is_block(letter.record.raw_properties),
    )
