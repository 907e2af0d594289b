"""Publishing to RabbitMQ: mandatory publishes with confirms, many in flight, none unaccounted for.

What an answer means here:

    ack                    the broker took it and routed it              confirmed
    return, then ack       no queue is bound for it                      returned
    nack                   its queue is full, and rejects what comes     refused
                           its queue failed, or nobody knows why         in_doubt
    channel or connection  alone in flight: by the reply code            refused, in_doubt
    closed                 else one of the messages that the text can mean was refused, and the broker ignored
                           all after it: so the last of them and all after it were not taken, and go again
    silence, a lost socket nothing is known of those in flight           in_doubt

An exchange that is not there or may not be written to, or a key that it may not be written to with, is left
out from then on, and the rest goes. That costs a doubt only where letters were in flight: so the first letter
to an exchange goes alone, and so does the first one with each of some keys.
"""

import math
import re
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from pika import spec

from dlq.connectors.base import UNSENT_SECONDS, Outcome, Outgoing, Sent
from dlq.connectors.local.credentials import log_in
from dlq.connectors.rabbitmq.amqp091.codec.confirms import Confirms, Open, message
from dlq.connectors.rabbitmq.amqp091.link.duplex import DuplexLink
from dlq.connectors.rabbitmq.link import connecting, named_parameters, place_of, refusal
from dlq.connectors.rabbitmq.look.topology import is_down, may_be_full, rejects_when_full
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.envelope import Way
from dlq.connectors.rabbitmq.republish import CAUTIOUS_BODY, block_to_send, why_no_frame
from dlq.connectors.rabbitmq.send import Ways
from dlq.connectors.sending import Untaken, WindowedPublisher
from dlq.core.errors import ConnectionLost
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.text import for_terminal

UNSENT_BYTES = 256 * 1024
_NO_QUEUE = "returned by the broker: no queue is bound for it (NO_ROUTE)"
_FULL = "refused by the broker (nack): its queue is full and rejects what comes"
_FAILED = "nacked by the broker: its queue failed, so it may have been stored"
_UNROUTED = {403, 404, 406, 501, 502, 503, 505}
"""Reply codes of what a broker finds before it routes a message: of a channel, that it may not go there, or
claims or weighs what it must not; of a connection, that it cannot be read. Any other may come after that."""
_UNREADABLE = range(501, 506)
_OF_THE_WAY = {403, 404, 405}
"""Of these, codes that another letter that goes the same way would meet, too."""
OFFENDER = re.compile(
    r"(?:(?:no|internal|access to) |access to topic '(?P<key>.*)' in )exchange '(?P<exchange>.*)' in vhost "
)
"""What the broker tells of the letter over which it closes a channel, or ends a session of AMQP 1.0: an
exchange that is not there, is internal or may not be written to, or a routing key for which a topic exchange
may not be."""
_TOO_LARGE = re.compile(r"message size \d+ is larger than configured max size (?P<most>\d+)")
_KEYS_TRIED = 100
_TRYING_SECONDS = 2.0
"""Of an exchange: the first letter with each of so many keys goes alone, which takes a round trip, and for so
long after the first letter to it. Where one was refused, it is the first with any."""


def connection_name(plan: str) -> str:
    """Return what the broker's lists call the connection of a plan's publisher."""
    return f"dlq replay {plan}"


class RabbitPublisher(WindowedPublisher):
    """See `dlq.connectors.base.Publisher`. `ways` say how a letter is published.

    An alarm of the broker's (`blocked_seconds`) or its silence (`silent_seconds`) is waited for, then
    the socket is cut: the broker may still take what is in flight, so it is in doubt.
    """

    heavy_bytes = CAUTIOUS_BODY
    silent_seconds = 60.0

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        ways: Ways | None = None,
        blocked_seconds: float = 30.0,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        """Connect; raises BrokerError. `unsent_seconds`: see `Connector.publisher`."""
        super().__init__(window, place_of(broker))
        self._broker, self._blocked_seconds = broker, blocked_seconds
        self._ways = ways or Ways(broker, plan)
        self._connect_anew = partial(log_in, broker, partial(self._connect, plan, unsent_seconds))
        self._link = self._connect_anew()
        self._confirms = Confirms()
        self._blocked: str | None = None
        self._blocked_since = math.inf
        self._is_down = cache(partial(is_down, broker))
        rejecting = cache(partial(rejects_when_full, broker))
        self._may_be_full = cache(partial(may_be_full, broker, rejecting))
        """Asked anew by each poll: a queue that was full a moment ago may have failed since."""
        self._failed_queue: str | None = None
        self._begun: dict[str, tuple[set[str], float]] = {}
        """Exchange ("": the default one) -> keys with which a letter went to it, and until when new ones are
        tried."""
        self._last: tuple[Outgoing, Way] | None = None
        """The letter that was asked about last: the same one is asked about again."""
        self._choosy: set[str] = set()
        """Exchanges that have refused a key."""

    def _connect(self, plan: str, unsent_seconds: float) -> DuplexLink:
        choices = named_parameters(self._broker, connection_name(plan))
        with connecting(self._broker):
            link = DuplexLink(choices, lambda code, text: refusal(code, text, self._broker), unsent_seconds)
            _start_confirms(link)
        link.writing = self.announce
        return link

    def put(self, letter: Outgoing) -> None:
        """Put a letter into the outbox. It is refused where the broker denies the way to its target, and not
        where that cannot be made at the moment."""
        try:
            way = self._way_of(letter)
            if why := self._ways.why_barred(way):
                self.answers.append(Sent(letter.number, "unsent", why))
                return
            block = block_to_send(letter.record, letter.provenance, letter.keep_headers, way.copies)
            if why := why_no_frame(len(block), self._link.frame_max):
                raise ValueError(why)
            frames = message(way.exchange, way.key, block, letter.record.body, self._link.frame_max)
        except ValueError as error:
            raise ValueError(f"it cannot be encoded: {error}") from error
        self._ways.make(letter, way)
        queue = letter.target.name if letter.target.kind == "queue" else ""
        self._confirms.add(
            Open(letter.number, letter.provenance.get(REPLAY_ID, ""), way.exchange, queue, way.key)
        )
        self._link.put(frames, letter.number)

    def goes_alone(self, letter: Outgoing) -> bool:
        """Return whether a letter goes alone, as the first one to an exchange, or with a key, does: where
        that is not there, or may not be written to, only this one is refused, and nothing is in doubt."""
        try:
            way = self._way_of(letter)
        except ValueError:
            return False  # `put` says why it is refused
        key = way.key if letter.target.kind == "exchange" else ""
        is_first = self._is_first(way.exchange, key)
        return is_first or super().goes_alone(letter)

    def _is_first(self, exchange: str, key: str) -> bool:
        """Return whether a letter with this key is to be tried before others go along."""
        begun, until = self._begun.get(exchange) or (set[str](), time.monotonic() + _TRYING_SECONDS)
        if key in begun:
            return False
        self._begun[exchange] = begun, until
        is_tried = len(begun) < _KEYS_TRIED and time.monotonic() < until
        if begun and not is_tried and exchange not in self._choosy:
            return False
        begun.add(key)
        return True

    def _way_of(self, letter: Outgoing) -> Way:
        """Return the way of a letter. Raises ValueError where its properties cannot be read."""
        if self._last is None or self._last[0] is not letter:
            self._last = letter, self._ways.way_of(letter)
        return self._last[1]

    def has_room(self) -> bool:
        """Return whether no alarm blocks us, and the socket takes what we give."""
        return self._blocked is None and self._link.unsent < UNSENT_BYTES

    def poll(self, wait: float) -> None:
        """Write and read what the socket takes and has."""
        self._link.turn(wait, writing=self._blocked is None)
        self._take_returns()
        confirms = self._confirms
        self._may_be_full.cache_clear()
        for method in self._link.take_methods():
            if self._confirms is not confirms:
                break  # what came behind the end of that channel or connection
            _HANDLERS.get(type(method), _ignore)(self, method)
        if self._failed_queue is not None:
            failed = f"a queue failed: {self._failed_queue}; is the node that it lies on up?"
            raise ConnectionLost(f"{self._place}: {failed}")
        self._look_at_the_alarm()

    def _take_returns(self) -> None:
        """Take returns. Only they carry content here, and it is complete before the answer to its message
        comes."""
        for delivery in self._link.take_deliveries(self._window):
            self._confirms.take_return(delivery.block, REPLAY_ID)

    def _on_ack(self, method: Any) -> None:
        for entry, returned in self._take_answer(method):
            if not returned:
                self.answers.append(Sent(entry.number, "confirmed"))
                continue
            self.answers.append(Sent(entry.number, "returned", _NO_QUEUE))
            if self._is_down(entry.queue):
                self._failed_queue = for_terminal(entry.queue)

    def _take_answer(self, method: Any) -> list[tuple[Open, bool]]:
        return self._confirms.take_answer(method.delivery_tag, method.multiple, self._link.waiting)

    def _on_nack(self, method: Any) -> None:
        for entry, _ in self._take_answer(method):
            if self._may_be_full(entry.queue):
                self.answers.append(Sent(entry.number, "refused", _FULL))
                continue
            self.answers.append(Sent(entry.number, "in_doubt", _FAILED))
            self._ways.note_failure(entry.queue)
            self._failed_queue = for_terminal(entry.queue) or "one that its exchange leads to"

    def _on_blocked(self, method: Any) -> None:
        self._blocked = for_terminal(str(method.reason))

    def _on_unblocked(self, _method: Any) -> None:
        self._blocked = None

    def _on_connection_close(self, method: Any) -> None:
        """Heed the end of a connection: it is one letter's doing where no other is in flight."""
        if len(self.in_flight) == 1 and method.reply_code in _UNREADABLE:
            self._give_up_the_only(method)
            self._link.cut()
            self._link, self._confirms = self._connect_anew(), Confirms()
            return
        raise refusal(method.reply_code, str(method.reply_text), self._broker)

    def _on_channel_close(self, method: Any) -> None:
        if not self.is_alone():
            self._give_up_all(method)
            self._link.cut()  # what is in the outbox must not go to the old channel
            self._link, self._confirms = self._connect_anew(), Confirms()
            return
        told = OFFENDER.search(str(method.reply_text))
        if method.reply_code in _OF_THE_WAY:
            [letter] = self.in_flight.values()
            way, of_all = self._way_of(letter), told is not None and told["key"] is None
            self._ways.bar(way.exchange, None if of_all else way.key, for_terminal(str(method.reply_text)))
        self._give_up_the_only(method)
        self._open_again()

    def _give_up_all(self, method: Any) -> None:
        """Give up all that is open. An exchange that is gone may have been there for all but the last letter
        that is meant; a limit of a channel does not change. From that on they go again. Raises what the
        broker says where that names none."""
        given_up, text = self._confirms.give_up(), str(method.reply_text)
        meant = [place for place, entry in enumerate(given_up) if self._is_meant(entry, text)]
        last = (min if _TOO_LARGE.search(text) else max)(meant, default=len(given_up))
        shown = for_terminal(text)
        self.answers += [Sent(entry.number, "in_doubt", shown) for entry in given_up[:last]]
        self.answers += [Untaken(entry.number) for entry in given_up[last:]]
        if not meant:
            raise refusal(method.reply_code, text, self._broker)
        self._beware(given_up[last], text)

    def _is_meant(self, entry: Open, text: str) -> bool:
        """Return whether the broker may have closed the channel over this letter."""
        if large := _TOO_LARGE.search(text):
            return self.in_flight[entry.number].record.body_size > int(large["most"])
        told = OFFENDER.search(text)
        exchange = {"amq.default": ""}.get(told["exchange"], told["exchange"]) if told else None
        return told is not None and entry.exchange == exchange and told["key"] in (None, entry.routing_key)

    def _beware(self, entry: Open, text: str) -> None:
        """Send alone from now on what is like this letter."""
        if large := _TOO_LARGE.search(text):
            self.heavy_bytes = int(large["most"])
            return
        self._choosy.add(entry.exchange)
        self._begun.pop(entry.exchange, None)

    def _give_up_the_only(self, method: Any) -> None:
        outcome: Outcome = "refused" if method.reply_code in _UNROUTED else "in_doubt"
        text = for_terminal(str(method.reply_text))
        self.answers += [Sent(entry.number, outcome, text) for entry in self._confirms.give_up()]

    def _open_again(self) -> None:
        """Open a new channel, on which delivery tags count from 1."""
        self._link.stop()
        self._link.send(spec.Channel.CloseOk())
        self._link.open_channel()
        _start_confirms(self._link)
        self._confirms = Confirms()

    def _look_at_the_alarm(self) -> None:
        """Look at the alarm. One that is said again, or that ends and begins before a letter could go, is the
        same."""
        if self._blocked is None:
            self._blocked_since = math.inf
            return
        self._blocked_since = min(self._blocked_since, time.monotonic())
        if time.monotonic() - self._blocked_since > self._blocked_seconds:
            raise ConnectionLost(
                f"{self._place}: an alarm of the broker's ({self._blocked}) blocks publishers for more than "
                f"{self._blocked_seconds:.0f} s; free memory or disk there, then apply again"
            )

    def cut(self) -> None:
        """Cut the connection: the kernel drops what it has not sent."""
        self._link.cut()

    def end(self) -> None:
        """End the connection in order, unless it is dead."""
        if self._link.unsent or self._link.dead:
            self._link.cut()
            return
        self._link.stop()
        self._link.close()


def _start_confirms(link: DuplexLink) -> None:
    try:
        link.call(spec.Confirm.Select(), spec.Confirm.SelectOk)
    except BaseException:
        link.cut()
        raise
    link.start()


def _ignore(_publisher: RabbitPublisher, _method: Any) -> None:
    """Ignore basic.return: its content says whose it is."""


_HANDLERS: dict[type, Callable[[RabbitPublisher, Any], None]] = {
    spec.Basic.Ack: RabbitPublisher._on_ack,
    spec.Basic.Nack: RabbitPublisher._on_nack,
    spec.Connection.Blocked: RabbitPublisher._on_blocked,
    spec.Connection.Unblocked: RabbitPublisher._on_unblocked,
    spec.Connection.Close: RabbitPublisher._on_connection_close,
    spec.Channel.Close: RabbitPublisher._on_channel_close,
}
