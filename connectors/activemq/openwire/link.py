"""One OpenWire connection: stomp.py connects (failover, TLS), our own reader reads."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from itertools import count

from dlq.connectors.activemq.link.refusals import UNSAID, RolledBack, login_hint, refusal
from dlq.connectors.activemq.link.sockets import (
    Address,
    first_that_answers,
    open_socket,
    openwire_address_of,
    password_for,
)
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.commands import Reader
from dlq.connectors.activemq.openwire.codec.messages import Dispatch
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.link import PATIENCE, Unanswered, unanswered_error
from dlq.connectors.base import Writing, keep_no_mark
from dlq.connectors.net import outbound
from dlq.connectors.net.links import is_pause
from dlq.core import units
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost, DlqError, Unreachable
from dlq.core.protocols import foreign

_RECEIVE = 2**18
_REASON_SECONDS = 0.5
_BROWSER, _ALL = 3, 2**31 - 1
"""The number of the consumer that browses; a window without end."""
_STALLED = 0.1
_SPARE = 1000
"""Answers beyond those that we asked for."""
_MOST_KEPT, _MOST_UNASKED = 2**30, 2**24
"""Bytes that may come while messages wait for whoever asks for them; and where nobody does, as while letters
are sent, that may come at all before they are answers."""
_numbers = count(1)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class OpenWireConnection:
    """A connection with one session. Not safe for several threads. `max_frame`: bytes of the longest command
    that is believed."""

    def __init__(self, broker: ActiveMQBroker, max_frame: int = commands.MAX_FRAME) -> None:
        """Connects. Raises ConfigError, Unreachable, AccessDenied."""
        self._broker, self._timeout = broker, units.seconds(broker.timeout)
        self._max_frame = max_frame
        self.writing: Writing = keep_no_mark
        """Asked before anything goes to the socket."""
        first_that_answers(broker, openwire_address_of(broker), self._connect)

    def guard(self, unsent_seconds: float) -> None:
        """See `outbound.guard`."""
        outbound.guard(self._socket, unsent_seconds)

    def _connect(self, address: Address) -> None:
        self._socket, self.node = open_socket(self._broker, address)
        self._socket.settimeout(self._timeout)
        self._reader = Reader(self._max_frame)
        self._issued = self._kept = 0
        self._answered: set[int] = set()
        self._refused: dict[int, BrokerError] = {}
        # Never used before: a broker drops what a known connection seems to repeat.
        name = f"ID:dlq-{os.getpid()}-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}:{next(_numbers)}"
        self.writer = commands.Writer(name)
        try:
            self._login(address.user)
        except BaseException:
            self.close()
            raise

    def _login(self, user: str) -> None:
        secret = password_for(self._broker, user)
        self.send(commands.greeting())
        deadline = time.monotonic() + self._timeout
        while not self._reader.version:
            if time.monotonic() > deadline:
                raise Unreachable(f"{self.place}: no answer; is this the OpenWire port?")
            self._read(1.0)
        if self._reader.version < commands.VERSION:
            said = f"the broker speaks OpenWire {self._reader.version}, not {commands.VERSION}"
            raise BrokerError(f"{self.place}: {said}; take openwire_url out")
        receipt = self.new_receipt()
        self.send(self.writer.connect(user or None, secret if user else None, int(receipt)))
        try:
            self.wait_for(receipt)
        except ConnectionLost:
            raise
        except BrokerError as error:
            raise AccessDenied(f"{error}; {login_hint(str(error), self._broker)}") from error

    @property
    def place(self) -> str:
        """The broker as error texts name it."""
        return f"{self._broker.name} ({self.node})"

    @property
    def version(self) -> str:
        """5.18.6, 6.3.1; empty when the broker does not say."""
        return self._reader.provider

    @property
    def max_frame_of_broker(self) -> int | None:
        """Bytes of the longest command that it takes; None when it does not say."""
        return self._reader.max_frame

    @property
    def broker_id(self) -> str:
        """What the broker calls itself."""
        return self._reader.broker

    @property
    def artemis(self) -> bool:
        """Whether the other side is Artemis: its broker id is the UUID of its node (seen on 2.56.0), that of
        Classic has the form ID:host-port-time."""
        return _UUID.fullmatch(self._reader.broker) is not None

    def new_receipt(self) -> str:
        """The next number: OpenWire's answers name the number of their command."""
        self._issued += 1
        return str(self._issued)

    def send(self, data: bytes) -> None:
        """Write bytes. Raises ConnectionLost."""
        try:
            outbound.send_all(self._socket, data, self._timeout, self.writing)
        except OSError as error:
            if is_pause(error):
                raise Unanswered(f"{self.place}: it takes nothing: {error}") from error
            raise self._lost(error.strerror or str(error)) from error

    def receive(self, wait: float) -> list[Dispatch]:
        """Messages; none when nothing came for `wait` seconds. Raises what the broker refused."""
        if not self._reader.dispatched:
            self._read(wait)
        messages = list(self._reader.dispatched)
        self._reader.dispatched.clear()
        self._kept = 0
        return messages

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a command that has not come wholly."""
        return self._reader.unfinished_bytes

    def browse(self, queue: str, limit: int | None, pause: float) -> Iterator[Dispatch]:
        """The first `limit` messages of a queue (None: all), which changes nothing. It ends earlier when the
        broker says so, or nothing for `pause` seconds. Raises BrokerError."""
        started, ended, rest = self.new_receipt(), self.new_receipt(), limit or _ALL
        self.send(self.writer.consume(_BROWSER, queue, rest, True, None, int(started)))
        self.wait_for(started)
        name = b""
        while rest > 0 and (messages := self._browsed(queue, name, pause)):
            shown = [message for message in messages if message.name]
            rest -= len(shown)
            yield from shown
            if len(shown) < len(messages):
                break
            name = shown[-1].name
        self.send(self.writer.stop(_BROWSER, int(ended)))
        self.wait_for(ended)
        self.receive(0)  # what came meanwhile

    def _browsed(self, queue: str, last: bytes, pause: float) -> list[Dispatch]:
        """Artemis shows no more once its side of the socket was full for a moment (2.56.0), until it hears
        that something has come."""
        until = time.monotonic() + pause
        while not (messages := self.receive(min(pause, _STALLED))) and time.monotonic() < until:
            if last and self.artemis:
                self.send(self.writer.delivery_ack(_BROWSER, queue, last))
        return messages

    def wait_for(self, receipt: str) -> None:
        """As long as `PATIENCE` says. Raises what the broker refused, else ConnectionLost."""
        number, patience = int(receipt), PATIENCE * self._timeout
        deadline = time.monotonic() + patience
        while number not in self._answered:
            if number in self._refused:
                raise self._refused[number]
            if time.monotonic() > deadline:
                raise unanswered_error(self.place, patience)
            self._read(1.0)
        self._answered.discard(number)

    def was_refused(self, receipt: str) -> bool:
        """Whether the broker answered that number with an exception."""
        return int(receipt) in self._refused

    def _read(self, wait: float) -> None:
        """Keep the answers that come within `wait` seconds. Raises the first refusal."""
        self._socket.settimeout(max(wait, 0.001))
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError as error:
            if is_pause(error):
                return
            raise self._lost(error.strerror or str(error)) from error
        finally:
            self._socket.settimeout(self._timeout)
        if not data:
            raise self._lost("closed by the broker")
        named_by = f"brokers.{self._broker.name}.{'openwire_url' if self._broker.openwire_url else 'url'}"
        if not self._reader.version and (other := foreign(self.node, data, "OpenWire", named_by)):
            raise ConnectionLost(f"{self._broker.name}: {other}")
        answers = self._reader.feed(data)
        self._answered.update(answer.receipt for answer in answers if answer.error is None)
        refused = {a.receipt: refusal(self.place, a.error, a.thrown) for a in answers if a.error is not None}
        self._refused |= refused
        self._kept = self._kept + len(data) if self._reader.dispatched else 0
        if len(self._answered) + len(self._refused) > self._issued + _SPARE or self._keeps_too_much():
            raise self._lost("the broker sends more than it was asked for")
        if refused:
            raise self._explained(next(iter(refused.values())))

    def _keeps_too_much(self) -> bool:
        if self.writer.has_consumers:
            return self._kept > _MOST_KEPT
        return self._kept + self.unfinished_bytes > _MOST_UNASKED

    def _explained(self, refused: BrokerError) -> BrokerError:
        """Which letter it refused the broker says from another thread, maybe after COMMIT's answer."""
        if not isinstance(refused, RolledBack):
            return refused
        until = time.monotonic() + _REASON_SECONDS
        with contextlib.suppress(BrokerError):  # the reason, which is kept, or the end of the connection
            while not self._reasons() and time.monotonic() < until:
                self._read(_REASON_SECONDS)
        reason = next(iter(self._reasons()), None)
        return refused if reason is None else type(reason)(f"{reason} ({refused})")

    def _reasons(self) -> list[BrokerError]:
        return [error for error in self._refused.values() if not isinstance(error, RolledBack)]

    def _lost(self, reason: str) -> ConnectionLost:
        hint = "" if self._reader.version else UNSAID.format("OpenWire")
        return ConnectionLost(f"{self.place}: the connection ended: {reason}{hint}")

    def close(self) -> None:
        """Say goodbye (ShutdownInfo) and close the socket; never raises."""
        self.writing = keep_no_mark  # no letter goes out any more
        with contextlib.suppress(DlqError, OSError):
            self.send(commands.goodbye())
        outbound.close(self._socket)
