"""One STOMP connection: receipts, refusals, and messages whose end is certain (see `codec`).

Heart-beats: the broker is asked for them, so that a dead one is noticed. We promise none, because a slow
disk must not look like a dead client; a newline is sent now and then while waiting, for brokers that end
silent connections (Artemis, after a minute).
"""

import time
from collections import deque
from collections.abc import Mapping
from functools import partial

from stomp.utils import CMD_CONNECT, convert_frame
from stomp.utils import Frame as PlainFrame

from dlq.connectors.activemq.link.refusals import login_hint, refusal, thrown_by
from dlq.connectors.activemq.link.sockets import (
    Address,
    BrokerWire,
    address_of,
    first_that_answers,
    password_for,
)
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import MAX_HEAD, Frame, FrameReader, encode, headers_of
from dlq.connectors.net import outbound
from dlq.connectors.wire import check_kept
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.text import for_terminal, shorten

_LONG_MESSAGE = 30.0
"""Seconds that an answer may take at least where messages come: it stands behind one that is long."""
_BROKER_BEAT_MS = 20_000
_SILENCE = 3 * _BROKER_BEAT_MS / 1000
_OWN_BEAT = 10.0, b"\n"
_PIECE = 2**14
_MOST_KEPT, _OBJECT, _SPARE = 2**30, 256, 1000
"""Bytes of messages that may wait for whoever asks for them, bytes that each takes beside its content, and
receipts beyond those that we asked for. Before anything is subscribed to, as while letters are sent, no more
may come than an answer may be long (`MAX_HEAD`)."""
_IN_PIECES = 0.5
"""Seconds that a message may go on coming before its reader is told that there is none yet."""


class Link(BrokerWire):
    """A connected STOMP 1.2 session. Not safe for several threads."""

    def __init__(self, broker: ActiveMQBroker) -> None:
        first_that_answers(broker, address_of(broker), partial(self._connect, broker))

    def _connect(self, broker: ActiveMQBroker, address: Address) -> None:
        super().__init__(broker, address, "STOMP", "url")
        self.heartbeat = _OWN_BEAT
        self._reader = FrameReader()
        self._inbox: deque[Frame] = deque()
        self._kept = 0
        self._asked = self._subscribed = False
        self._greeting: Frame | None = None
        self._receipts: set[bytes] = set()
        self._refused: dict[str, BrokerError] = {}
        try:
            self.server = self._login(address)
        except BaseException:
            self.close()
            raise

    @property
    def token(self) -> str:
        """The subscription id to use: only frames that carry it are believed."""
        return self._reader.token

    @property
    def artemis(self) -> bool:
        """Whether the other side is Artemis, by its `server` header."""
        return self.server.startswith("ActiveMQ-Artemis/")

    @property
    def version(self) -> str:
        """5.18.6, 6.3.1, 2.56.0; empty when the broker does not say."""
        return self.server.partition("/")[2].partition(" ")[0]

    def _login(self, address: Address) -> str:
        secret = password_for(self.broker, address.user)
        headers = {"accept-version": "1.2", "host": address.hosts[0][0], "heart-beat": f"0,{_BROKER_BEAT_MS}"}
        if address.user:
            headers |= {"login": address.user, "passcode": secret or ""}
        self.send(b"".join(convert_frame(PlainFrame(CMD_CONNECT, headers))))  # which nobody escapes
        self.wait_until(lambda: self._greeting is not None, patience=self.timeout)
        found = headers_of(self._greeting.head if self._greeting else b"")
        if found.get("version") != "1.2":
            raise BrokerError(f"{self.place}: the broker does not speak STOMP 1.2")
        return found.get("server", "")

    def send(self, data: bytes) -> None:
        """Write bytes. Raises ConnectionLost.

        Long data goes out in pieces, reading in between: a broker that is itself blocked in writing to
        us would read nothing more.
        """
        until = outbound.latest(self.timeout, len(data))
        for at in range(0, len(data), _PIECE):
            if at and self.ready(0)[0]:
                self.read(0)
            self.write(data[at : at + _PIECE], until)

    def feed(self, data: bytes) -> None:
        """Keep messages and receipts, those beside an ERROR too. Raises on ERROR."""
        frames = self._reader.feed(data)
        self._asked = self._asked and not frames
        if self._greeting is None and frames:
            self._greeting = self._check_greeting(frames[0])
        messages = [frame for frame in frames if frame.command == b"MESSAGE"]
        self._inbox.extend(messages)
        self._kept += sum([_OBJECT + len(frame.head) + len(frame.body) for frame in messages])
        self._receipts.update([frame.head for frame in frames if frame.command == b"RECEIPT"])
        errors = [frame for frame in frames if frame.command == b"ERROR"]
        self._refused |= {headers_of(one.head).get("receipt-id", ""): self.refusal(one) for one in errors}
        check_kept(self._kept + self.unfinished_bytes, _MOST_KEPT if self._subscribed else MAX_HEAD)
        check_kept(max(len(self._receipts), len(self._refused)), self._reader.receipts + _SPARE)
        if errors:
            raise self.explain(self.refusal(errors[0]), self._refused)

    def _check_greeting(self, frame: Frame) -> Frame:
        if frame.command == b"ERROR":
            said = shorten(for_terminal(_reason(headers_of(frame.head))), 300)
            raise AccessDenied(f"{self.place}: the broker refused: {said}; {login_hint(said, self.broker)}")
        return frame

    def last_words(self) -> str | None:
        """Return an ERROR that has not come wholly."""
        return self._reader.last_error()

    def read(self, wait: float) -> bool:
        """See `Wire`. Raises Unanswered where a broker's heart does not beat."""
        came = super().read(wait)
        if not came and time.monotonic() - self.heard > _SILENCE:
            raise self.give_up(f"nothing was heard from the broker for {_SILENCE:.0f} s")
        return came

    def receive(self, wait: float) -> list[Frame]:
        """Return messages that are certain; none when nothing came for `wait` seconds. ERROR raises."""
        until = time.monotonic() + _IN_PIECES
        while not self._inbox:
            heard = self.heard
            self.read(wait)
            if not (self._inbox or self._asked) and self.unfinished_bytes:
                self._asked = True
                self.send(self._ping(self._reader.receipt()))
            if self.heard == heard or self.heard > until:
                break
        messages = list(self._inbox)
        self.discard()
        return messages

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a frame that has not come wholly."""
        return self._reader.unfinished_bytes

    def discard(self) -> None:
        """Forget messages that were received and not asked for yet."""
        self._inbox.clear()
        self._kept = 0

    def _ping(self, receipt: str) -> bytes:
        """Something harmless that both brokers answer with a receipt."""
        begin = encode("BEGIN", {"transaction": receipt, "receipt": receipt})
        return begin + encode("ABORT", {"transaction": receipt})

    def refusal(self, frame: Frame) -> BrokerError:
        """Return an ERROR frame as one of our errors."""
        return refusal(self.place, _reason(headers_of(frame.head)), thrown_by(frame.body))

    def request(self, command: str, headers: Mapping[str, str], body: bytes | None = None) -> None:
        """Send with a receipt and wait for it; messages that come meanwhile are kept. Raises on ERROR."""
        receipt = self._reader.receipt()
        self._subscribed |= command == "SUBSCRIBE"
        self.send(encode(command, {**headers, "receipt": receipt}, body))
        self.wait_for(receipt)

    def ping(self) -> None:
        """Wait until the broker has done all that was sent before."""
        receipt = self._reader.receipt()
        self.send(self._ping(receipt))
        self.wait_for(receipt)

    def new_receipt(self) -> str:
        """Return a receipt id for a frame that the caller writes itself."""
        return self._reader.receipt()

    def wait_for(self, receipt: str) -> None:
        """Wait until the RECEIPT with this id is here. Raises ConnectionLost when it does not come in time,
        and BrokerError on an ERROR, whatever it answers (see `was_refused`)."""
        line = f"receipt-id:{receipt}".encode()

        def is_there() -> bool:
            if receipt in self._refused:
                raise self._refused[receipt]
            return line in self._receipts

        self.wait_until(is_there, patience=max(self.patience, _LONG_MESSAGE if self._subscribed else 0.0))
        self._receipts.discard(line)

    def was_refused(self, receipt: str) -> bool:
        """Return whether the command with this receipt was answered by an ERROR."""
        return receipt in self._refused

    def say_goodbye(self) -> None:
        """DISCONNECT, which nobody answers."""
        self.write(encode("DISCONNECT", {}))


def _reason(headers: Mapping[str, str]) -> str:
    return headers.get("message", "no reason given")
