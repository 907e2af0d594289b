"""One STOMP connection: stomp.py connects (failover, TLS), our own frame reader reads.

stomp.py's reader loses bytes (see `codec`), so its thread is never started: its transport opens
the socket, tries the next address, checks the certificate, and hands the socket over.

Heart-beats: the broker is asked for them, so that a dead one is noticed. We promise none, because a slow
disk must not look like a dead client; a newline is sent now and then while waiting, for brokers that end
silent connections (Artemis, after a minute).
"""

import contextlib
import select
import time
from collections import deque
from collections.abc import Mapping

from dlq.connectors.activemq.link.refusals import UNSAID, login_hint, refusal, thrown_by
from dlq.connectors.activemq.link.sockets import (
    Address,
    address_of,
    first_that_answers,
    open_socket,
    password_for,
)
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import MAX_HEAD, Frame, FrameReader, encode, headers_of
from dlq.connectors.base import Writing, keep_no_mark
from dlq.connectors.net import outbound
from dlq.connectors.net.links import is_pause
from dlq.core import units
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost, DlqError, Unreachable
from dlq.core.protocols import foreign
from dlq.core.text import for_terminal, shorten

PATIENCE = 3
"""Time-outs that an answer may take."""
_LONG_MESSAGE = 30.0
"""Seconds that it may take at least while something comes: an answer stands behind a message that is long."""
_RECEIVE = 2**18
_BROKER_BEAT_MS = 20_000
_SILENCE = 3 * _BROKER_BEAT_MS / 1000
_OWN_BEAT = 10.0
_PIECE = 2**14
_MOST_KEPT, _OBJECT, _SPARE = 2**30, 256, 1000
"""Bytes of messages that may wait for whoever asks for them, bytes that each takes beside its content, and
receipts beyond those that we asked for. Before anything is subscribed to, as while letters are sent, no more
may come than an answer may be long (`MAX_HEAD`)."""
_IN_PIECES = 0.5
"""Seconds that a message may go on coming before its reader is told that there is none yet."""


class Link:
    """A connected STOMP 1.2 session. Not safe for several threads."""

    def __init__(self, broker: ActiveMQBroker) -> None:
        self.broker = broker
        self.writing: Writing = keep_no_mark
        """Asked before anything goes to the socket."""
        self.timeout = units.seconds(broker.timeout)
        first_that_answers(broker, address_of(broker), self._connect)

    def guard(self, unsent_seconds: float) -> None:
        """See `outbound.guard`."""
        outbound.guard(self._socket, unsent_seconds)

    def _connect(self, address: Address) -> None:
        self._socket, self.node = open_socket(self.broker, address)
        self._socket.settimeout(self.timeout)
        self._reader = FrameReader()
        self._inbox: deque[Frame] = deque()
        self._kept = 0
        self._heard = self._sent = time.monotonic()
        self._asked = self._greeted = self._subscribed = False
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
        self.send(encode("CONNECT", headers))
        found = headers_of(self._greeting().head)
        if found.get("version") != "1.2":
            raise BrokerError(f"{self.place}: the broker does not speak STOMP 1.2")
        return found.get("server", "")

    def _greeting(self) -> Frame:
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            for frame in self._read(1.0):
                if frame.command == b"ERROR":
                    said = shorten(for_terminal(_said(headers_of(frame.head))), 300)
                    raise AccessDenied(
                        f"{self.place}: the broker refused: {said}; {login_hint(said, self.broker)}"
                    )
                self._greeted = True
                return frame
        raise Unreachable(f"{self.place}: no answer; is this the STOMP port?")

    @property
    def place(self) -> str:
        """The broker as error texts name it."""
        return f"{self.broker.name} ({self.node})"

    def send(self, data: bytes) -> None:
        """Write bytes. Raises ConnectionLost.

        Long data goes out in pieces, reading in between: a broker that is itself blocked in writing to
        us would read nothing more.
        """
        until = outbound.latest(self.timeout, len(data))
        for at in range(0, len(data), _PIECE):
            if at:
                self._read_what_is_there()
            try:
                outbound.send_all(self._socket, data[at : at + _PIECE], self.timeout, self.writing, until)
            except OSError as error:
                if is_pause(error):
                    raise Unanswered(f"{self.place}: it takes nothing: {error}") from error
                raise self._lost(error) from error
        self._sent = time.monotonic()

    def _read_what_is_there(self) -> None:
        readable, _, _ = (
            select.select([self._socket], [], [], 0) if self._socket.fileno() < 1024 else ([], [], [])
        )
        if readable:
            self._keep(self._read(0.001))

    def _keep(self, frames: list[Frame]) -> None:
        """Keep messages and receipts, those beside an ERROR too. Raises on ERROR."""
        messages = [frame for frame in frames if frame.command == b"MESSAGE"]
        self._inbox.extend(messages)
        self._kept += sum([_OBJECT + len(frame.head) + len(frame.body) for frame in messages])
        self._receipts.update([frame.head for frame in frames if frame.command == b"RECEIPT"])
        errors = [frame for frame in frames if frame.command == b"ERROR"]
        self._refused |= {headers_of(one.head).get("receipt-id", ""): self.refusal(one) for one in errors}
        answers = max(len(self._receipts), len(self._refused))
        unasked = self._kept + self._reader.unfinished_bytes
        if (
            unasked > (_MOST_KEPT if self._subscribed else MAX_HEAD)
            or answers > self._reader.receipts + _SPARE
        ):
            raise ConnectionLost(f"{self.place}: the broker sends more than it was asked for")
        for one in errors:
            raise self.refusal(one)

    def receive(self, wait: float) -> list[Frame]:
        """Messages that are certain; none when nothing came for `wait` seconds. ERROR raises."""
        until = time.monotonic() + _IN_PIECES
        while not self._inbox:
            heard = self._heard
            frames = self._read(wait)
            if not frames and self._reader.unfinished_bytes and not self._asked:
                self._asked = True
                self.send(self._ping(self._reader.receipt()))
            self._keep(frames)
            if self._heard == heard or self._heard > until:
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

    def _read(self, wait: float) -> list[Frame]:
        self._socket.settimeout(max(wait, 0.001))
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError as error:
            if not is_pause(error):
                raise self._lost(error) from error
            self._check_silence()
            return []
        finally:
            self._socket.settimeout(self.timeout)
        if not data:
            raise self._lost(None)
        self._heard = time.monotonic()
        if not self._greeted and (
            other := foreign(self.node, data, "STOMP", f"brokers.{self.broker.name}.url")
        ):
            raise ConnectionLost(f"{self.broker.name}: {other}")
        frames = self._reader.feed(data)
        self._asked = self._asked and not frames
        return frames

    def _check_silence(self) -> None:
        now = time.monotonic()
        if now - self._heard > _SILENCE:
            raise Unanswered(f"{self.place}: nothing was heard from the broker for {_SILENCE:.0f} s")
        if now - self._sent > _OWN_BEAT:
            self.send(b"\n")

    def _lost(self, error: OSError | None) -> ConnectionLost:
        said = self._reader.last_error()
        silent = (error.strerror or str(error)) if error else "closed by the broker"
        hint = "" if self._greeted else UNSAID.format("STOMP")
        reason = shorten(for_terminal(said), 300) if said else silent + hint
        return ConnectionLost(f"{self.place}: the connection ended: {reason}")

    def refusal(self, frame: Frame) -> BrokerError:
        """An ERROR frame as one of our errors."""
        return refusal(self.place, _said(headers_of(frame.head)), thrown_by(frame.body))

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
        """A receipt id for a frame that the caller writes itself."""
        return self._reader.receipt()

    def wait_for(self, receipt: str) -> None:
        """Until the RECEIPT with this id is here. Raises ConnectionLost when it does not come in time, and
        BrokerError on an ERROR, whatever it answers (see `was_refused`)."""
        line = f"receipt-id:{receipt}".encode()
        began = time.monotonic()
        while line not in self._receipts:
            if receipt in self._refused:
                raise self._refused[receipt]
            is_silent = time.monotonic() - self._heard > self.timeout
            patience = self.patience if is_silent else max(self.patience, _LONG_MESSAGE)
            if time.monotonic() - began > patience:
                raise unanswered_error(self.place, patience)
            self._keep(self._read(1.0))
        self._receipts.discard(line)

    def was_refused(self, receipt: str) -> bool:
        """Whether the command with this receipt was answered by an ERROR."""
        return receipt in self._refused

    @property
    def patience(self) -> float:
        """Seconds of silence after which an answer is not waited for any more."""
        return PATIENCE * self.timeout

    def close(self) -> None:
        """Let go of the connection in order; never raises."""
        self.writing = keep_no_mark  # no letter goes out any more
        with contextlib.suppress(DlqError, OSError):
            self.send(encode("DISCONNECT", {}))
        outbound.close(self._socket)


class Unanswered(ConnectionLost):
    """The connection is there, and the broker does not do what it was asked for."""


def unanswered_error(place: str, patience: float) -> Unanswered:
    """A command that should have been answered by now."""
    said = f"no answer for {patience:.0f} s"
    return Unanswered(f"{place}: {said}; a memory or store limit holds producers back, or it hangs")


def _said(headers: Mapping[str, str]) -> str:
    return headers.get("message", "no reason given")
