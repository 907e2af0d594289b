"""Publishing to RabbitMQ: mandatory publishes with confirms, many in flight, none unaccounted for.

What an answer means here:

    ack                    the broker took it and routed it              confirmed
    return, then ack       no queue is bound for it                      returned
    nack                   its queue is full, and rejects what comes     refused
                           its queue failed, or nobody knows why         in_doubt
    channel closed         the message that the text names was refused, and the broker ignored all
                           after it; of those before it nothing is known in_doubt
    silence, a lost socket nothing is known of those in flight           in_doubt
"""

import re
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from pika import spec

from dlq.connectors.base import UNSENT_SECONDS, Outgoing, Sent, Target, Writing, unmarked
from dlq.connectors.links import LinkLostError
from dlq.connectors.rabbitmq.amqp.confirms import Confirms, Open, message
from dlq.connectors.rabbitmq.amqp.duplex import DuplexLink
from dlq.connectors.rabbitmq.connection import as_our_error, named, place_of, refusal
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.republishing import CAUTIOUS_BODY, address_of, block_to_send
from dlq.connectors.rabbitmq.topology import is_down, rejects_when_full
from dlq.core.errors import ConnectionLost, DlqError
from dlq.core.provenance import REPLAY_ID
from dlq.core.text import for_terminal

"""The header of a replay by which its return is known."""

_UNSENT_BYTES = 256 * 1024
_FILL_SECONDS = 0.005
_PATIENCE = 0.2
_NO_QUEUE = "returned by the broker: no queue is bound for it (NO_ROUTE)"
_FULL = "refused by the broker (nack): its queue is full and rejects what comes"
_FAILED = "nacked by the broker: its queue failed, so it may have been stored"
_NEVER_READ = "not taken by the broker: it had closed the channel over an earlier letter"
_UNKNOWN = "the broker's answer never came"
_OFFENDER = re.compile(
    r"(?:(?:no|internal|access to) |access to topic '(?P<key>.*)' in )exchange '(?P<exchange>.*)' in vhost "
)
"""What a closing channel tells of the letter that it closes for: an exchange that is not there, is internal
or may not be written to, or a routing key for which a topic exchange may not be."""


def connection_name(plan: str) -> str:
    """What the broker's lists call the connection of a plan's publisher."""
    return f"dlq replay {plan}"


class RabbitPublisher:
    """See `dlq.connectors.base.Publisher`. `route` says where a target is published to.

    An alarm of the broker's (`blocked_seconds`) or its silence (`silent_seconds`) is waited for, then
    the socket is cut: the broker may still take what is in flight, so it is in doubt.
    """

    def __init__(
        self,
        broker: RabbitBroker,
        plan: str,
        window: int,
        route: Callable[[Target], tuple[str, str]] = address_of,
        blocked_seconds: float = 30.0,
        silent_seconds: float = 60.0,
        unsent_seconds: float = UNSENT_SECONDS,
    ) -> None:
        """Connect; raises BrokerError. `unsent_seconds`: see `Connector.publisher`."""
        self._broker, self._window, self._route = broker, window, route
        self._blocked_seconds, self._silent_seconds = blocked_seconds, silent_seconds
        self._link = self._connected(plan, unsent_seconds)
        self._confirms = Confirms()
        self._answers: list[Sent] = []
        self._large: Outgoing | None = None
        self._alone = False
        self._over = False
        self._blocked: str | None = None
        self._waiting_since = 0.0
        self._failure: DlqError | None = None
        self._is_down = cache(partial(is_down, broker))
        self._rejects_when_full = cache(partial(rejects_when_full, broker))
        self._failed_queue: str | None = None

    def _connected(self, plan: str, unsent_seconds: float) -> DuplexLink:
        choices = named(self._broker, connection_name(plan))
        try:
            link = DuplexLink(choices, lambda code, text: refusal(code, text, self._broker), unsent_seconds)
            _confirming(link)
        except (OSError, LinkLostError) as error:
            raise as_our_error(error, self._broker) from error
        return link

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = unmarked) -> Iterator[Sent]:
        """See `Publisher.publish`. Raises ConnectionLost, or what made the broker close the channel."""
        if self._failure is not None:
            raise self._failure
        self._over, self._link.writing = False, writing
        while not self._over or self._confirms or self._large:
            self._take(outgoing)
            self._turn()
            answers, self._answers = self._answers, []
            yield from answers
            if self._failure is not None:
                raise self._failure

    def _take(self, outgoing: Iterator[Outgoing]) -> None:
        """Fill the window. A letter that might be too large is sent when no other is in flight."""
        until = time.monotonic() + _FILL_SECONDS
        while self._has_room() and time.monotonic() < until:
            if self._large is not None:
                large, self._large, self._alone = self._large, None, True
                self._give(large)
            elif (letter := next(outgoing, None)) is None:
                self._over = True
            elif letter.record.body_size > CAUTIOUS_BODY:
                self._large = letter
            else:
                self._give(letter)

    def _has_room(self) -> bool:
        if self._blocked is not None or self._alone:
            return False
        if self._over or self._large is not None:
            return self._large is not None and not self._confirms
        return len(self._confirms) < self._window and self._link.unsent < _UNSENT_BYTES

    def _give(self, letter: Outgoing) -> None:
        try:
            exchange, routing_key = self._route(letter.target)
            block = block_to_send(letter.record, letter.provenance, letter.keep_headers)
            frames = message(exchange, routing_key, block, letter.record.body, self._link.frame_max)
        except ValueError as error:
            self._alone = False
            self._answers.append(Sent(letter.number, "refused", f"it cannot be encoded: {error}"))
            return
        except DlqError as error:
            self._answers.append(Sent(letter.number, "refused", "never sent: no way to its target"))
            self._fail(error)
            return
        if not self._confirms:
            self._waiting_since = time.monotonic()
        queue = letter.target.name if letter.target.kind == "queue" else ""
        self._confirms.sent(
            Open(letter.number, letter.provenance.get(REPLAY_ID, ""), exchange, queue, routing_key)
        )
        self._link.put(frames, letter.number)

    def _turn(self) -> None:
        at_once = self._answers or self._has_room()
        try:
            self._link.turn(0.0 if at_once else _PATIENCE, writing=self._blocked is None)
            self._take_returns()
            for method in self._link.take_methods():
                _HANDLERS.get(type(method), _ignore)(self, method)
        except LinkLostError as error:
            self._fail(ConnectionLost(f"{place_of(self._broker)}: the connection ended: {error}"))
        except DlqError as error:
            self._fail(error)
        if self._failed_queue is not None:
            failed = f"a queue failed: {self._failed_queue}; is the node that it lies on up?"
            self._fail(ConnectionLost(f"{place_of(self._broker)}: {failed}"))
        self._look_at_the_clock()

    def _take_returns(self) -> None:
        """Only returns carry content here; it is complete before the answer to its message comes."""
        for delivery in self._link.take_deliveries(self._window):
            self._confirms.returned(delivery.block, REPLAY_ID)

    def _on_ack(self, method: Any) -> None:
        self._waiting_since = time.monotonic()
        self._alone = False
        for entry, returned in self._confirms.answered(method.delivery_tag, method.multiple):
            if not returned:
                self._answers.append(Sent(entry.number, "confirmed"))
                continue
            self._answers.append(Sent(entry.number, "returned", _NO_QUEUE))
            if self._is_down(entry.queue):
                self._failed_queue = for_terminal(entry.queue)

    def _on_nack(self, method: Any) -> None:
        self._waiting_since = time.monotonic()
        self._alone = False
        for entry, _ in self._confirms.answered(method.delivery_tag, method.multiple):
            if self._rejects_when_full(entry.queue):
                self._answers.append(Sent(entry.number, "refused", _FULL))
                continue
            self._answers.append(Sent(entry.number, "in_doubt", _FAILED))
            self._failed_queue = for_terminal(entry.queue) or "one that its exchange leads to"

    def _on_blocked(self, method: Any) -> None:
        self._blocked = for_terminal(str(method.reason))
        self._waiting_since = time.monotonic()

    def _on_unblocked(self, _method: Any) -> None:
        self._blocked = None
        self._waiting_since = time.monotonic()

    def _on_connection_close(self, method: Any) -> None:
        self._fail(refusal(method.reply_code, str(method.reply_text), self._broker))

    def _on_channel_close(self, method: Any) -> None:
        text = for_terminal(str(method.reply_text))
        if self._alone:
            self._answers += [Sent(entry.number, "refused", text) for entry in self._confirms.give_up()]
            self._open_again()
            return
        found = _OFFENDER.search(str(method.reply_text))
        ignored = False
        for entry in self._confirms.give_up():
            if ignored:
                self._answers.append(Sent(entry.number, "refused", _NEVER_READ))
            else:
                ignored = found is not None and _is_meant(entry, found)
                self._answers.append(Sent(entry.number, "refused" if ignored else "in_doubt", text))
        self._fail(refusal(method.reply_code, str(method.reply_text), self._broker))

    def _open_again(self) -> None:
        """Delivery tags count from 1 on the new channel."""
        self._alone = False
        self._link.stop()
        self._link.send(spec.Channel.CloseOk())
        self._link.open_channel()
        _confirming(self._link)
        self._confirms = Confirms()

    def _look_at_the_clock(self) -> None:
        waited = time.monotonic() - self._waiting_since
        where = place_of(self._broker)
        if self._blocked is not None and waited > self._blocked_seconds:
            self._fail(
                ConnectionLost(
                    f"{where}: an alarm of the broker's ({self._blocked}) blocks publishers for more than "
                    f"{self._blocked_seconds:.0f} s; free memory or disk there, then apply again"
                )
            )
        elif self._blocked is None and self._confirms and waited > self._silent_seconds:
            self._fail(ConnectionLost(f"{where}: no answer to {len(self._confirms)} letters in flight"))

    def _fail(self, failure: DlqError) -> None:
        """Nothing more is known of what is in flight; a letter that was held back was never written."""
        if self._failure is not None:
            return
        self._failure = failure
        self._answers += [Sent(entry.number, "in_doubt", _UNKNOWN) for entry in self._confirms.give_up()]
        if self._large is not None:
            self._answers.append(Sent(self._large.number, "in_doubt", _UNKNOWN))
        self._large, self._over = None, True
        self._link.cut()

    def close(self) -> None:
        """See `Publisher.close`. With letters in flight (the caller gave up) the socket is cut."""
        if self._confirms or self._link.unsent or self._link.dead:
            self._link.cut()
            return
        self._link.stop()
        self._link.close()


def _is_meant(entry: Open, told: re.Match[str]) -> bool:
    """Whether a channel closed for this letter, the first of those that its text can mean."""
    exchange = {"amq.default": ""}.get(told["exchange"], told["exchange"])
    return entry.exchange == exchange and told["key"] in (None, entry.routing_key)


def _confirming(link: DuplexLink) -> None:
    try:
        link.call(spec.Confirm.Select(), spec.Confirm.SelectOk)
    except BaseException:
        link.cut()
        raise
    link.start()


def _ignore(_publisher: RabbitPublisher, _method: Any) -> None:
    """basic.return: its content says whose it is."""


_HANDLERS: dict[type, Callable[[RabbitPublisher, Any], None]] = {
    spec.Basic.Ack: RabbitPublisher._on_ack,
    spec.Basic.Nack: RabbitPublisher._on_nack,
    spec.Connection.Blocked: RabbitPublisher._on_blocked,
    spec.Connection.Unblocked: RabbitPublisher._on_unblocked,
    spec.Connection.Close: RabbitPublisher._on_connection_close,
    spec.Channel.Close: RabbitPublisher._on_channel_close,
}
