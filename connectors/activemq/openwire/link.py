"""One OpenWire connection: answers, refusals, and messages."""

import os
import re
import secrets
import time
from collections.abc import Iterator
from functools import partial
from itertools import count

from dlq.connectors.activemq.link.refusals import login_hint, refusal
from dlq.connectors.activemq.link.sockets import (
    Address,
    BrokerWire,
    first_that_answers,
    openwire_address_of,
    password_for,
)
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.commands import Reader
from dlq.connectors.activemq.openwire.codec.messages import Dispatch
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.wire import Wire, check_kept
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost

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


class OpenWireConnection(BrokerWire):
    """A connection with one session. Not safe for several threads. `max_frame`: bytes of the longest command
    that is believed."""

    def __init__(self, broker: ActiveMQBroker, max_frame: int = commands.MAX_FRAME) -> None:
        """Connects. Raises ConfigError, Unreachable, AccessDenied."""
        self._max_frame = max_frame
        first_that_answers(broker, openwire_address_of(broker), partial(self._connect, broker))

    def _connect(self, broker: ActiveMQBroker, address: Address) -> None:
        super().__init__(broker, address, "OpenWire", "openwire_url" if broker.openwire_url else "url")
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
        secret = password_for(self.broker, user)
        self.send(commands.greeting())
        self.wait_until(lambda: bool(self._reader.version), patience=self.timeout)
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
            raise AccessDenied(f"{error}; {login_hint(str(error), self.broker)}") from error

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
        """Return the next number: OpenWire's answers name the number of their command."""
        self._issued += 1
        return str(self._issued)

    send = Wire.write

    def receive(self, wait: float) -> list[Dispatch]:
        """Messages; none when nothing came for `wait` seconds. Raises what the broker refused."""
        if not self._reader.dispatched:
            self.read(wait)
        messages = list(self._reader.dispatched)
        self._reader.dispatched.clear()
        self._kept = 0
        return messages

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a command that has not come wholly."""
        return self._reader.unfinished_bytes

    def browse(
        self, queue: str, limit: int | None, pause: float, selector: str | None = None
    ) -> Iterator[Dispatch]:
        """Yield the first `limit` messages (None: all) of a queue that the selector selects, which changes
        nothing. It ends earlier when the broker says so, or nothing for `pause` seconds. Raises
        BrokerError."""
        started, ended, rest = self.new_receipt(), self.new_receipt(), limit or _ALL
        self.send(self.writer.consume(_BROWSER, queue, rest, True, selector, int(started)))
        self.wait_for(started)
        name = b""
        while rest > 0 and (messages := self._receive_more(queue, name, pause)):
            shown = [message for message in messages if message.name]
            rest -= len(shown)
            yield from shown
            if len(shown) < len(messages):
                break
            name = shown[-1].name
        self.send(self.writer.stop(_BROWSER, int(ended)))
        self.wait_for(ended)
        self.receive(0)  # what came meanwhile

    def _receive_more(self, queue: str, last: bytes, pause: float) -> list[Dispatch]:
        """Receive more. Artemis shows none once its side of the socket was full for a moment (2.56.0), until
        it hears that something has come."""
        until = time.monotonic() + pause
        while not (messages := self.receive(min(pause, _STALLED))) and time.monotonic() < until:
            if last and self.artemis:
                self.send(self.writer.delivery_ack(_BROWSER, queue, last))
        return messages

    def wait_for(self, receipt: str) -> None:
        """As long as an answer may take. Raises what the broker refused, else ConnectionLost."""
        number = int(receipt)

        def is_there() -> bool:
            if number in self._refused:
                raise self._refused[number]
            return number in self._answered

        self.wait_until(is_there)
        self._answered.discard(number)

    def was_refused(self, receipt: str) -> bool:
        """Return whether the broker answered that number with an exception."""
        return int(receipt) in self._refused

    def feed(self, data: bytes) -> None:
        """Keep answers and messages. Raises the first refusal."""
        answers = self._reader.feed(data)
        self._answered.update(answer.receipt for answer in answers if answer.error is None)
        refused = {a.receipt: refusal(self.place, a.error, a.thrown) for a in answers if a.error is not None}
        self._refused |= refused
        self._kept = self._kept + len(data) if self._reader.dispatched else 0
        check_kept(len(self._answered) + len(self._refused), self._issued + _SPARE)
        if self.writer.has_consumers:
            check_kept(self._kept, _MOST_KEPT)
        else:
            check_kept(self._kept + self.unfinished_bytes, _MOST_UNASKED)
        if refused:
            raise self.explain(next(iter(refused.values())), self._refused)

    def say_goodbye(self) -> None:
        """ShutdownInfo."""
        self.write(commands.goodbye())
