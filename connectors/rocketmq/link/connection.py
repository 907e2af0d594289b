"""One connection to a name server or a broker: sockets, TLS, time-outs; requests out, answers in."""

import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from dlq.connectors.base import Writing, keep_no_mark
from dlq.connectors.net import outbound
from dlq.connectors.net.links import is_pause
from dlq.connectors.rocketmq.link.remoting import (
    Credential,
    Frame,
    FrameReader,
    ProtocolError,
    encode_fields,
    request,
    sign_fields,
    text_fields,
)
from dlq.core.errors import ConnectionLost, Unreachable
from dlq.core.hosts import host_of
from dlq.core.protocols import foreign

_CHUNK = 2**18
_PATIENCE = 6
"""Time-outs that one answer may take, once it has begun to come."""
_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h)."""


@dataclass(frozen=True)
class Access:
    """How to talk to a cluster: who we are, how long we wait (seconds), and whether by TLS."""

    credential: Credential | None = None
    timeout: float = 10.0
    tls: ssl.SSLContext | None = None

    @property
    def signs(self) -> bool:
        """Whether requests carry a signature, as access control lists want it; it covers all their fields."""
        return self.credential is not None


class Link:
    """A connection that keeps several requests in flight. Not safe for several threads."""

    def __init__(
        self, address: str, access: Access, brief: bool = False, named_by: str = "the configuration"
    ) -> None:
        """Connect to `host:port`; raises Unreachable. `brief`: see `FrameReader`; `named_by`: who told of
        the address."""
        self.address, self.named_by = address, named_by
        self.version = 0
        self.access = access
        self.timeout = access.timeout
        self._frames = FrameReader(brief=brief)
        self._answers: deque[Frame] = deque()
        self._opaque = 0
        self._broken = self._heard = False
        self.writing: Writing = keep_no_mark
        """Asked before anything goes to the socket."""
        self._socket = self._connect()

    def guard(self, unsent_seconds: float) -> None:
        """See `outbound.guard`."""
        outbound.guard(self._socket, unsent_seconds)

    def _connect(self) -> socket.socket:
        host, port = host_of(self.address), self.address.rpartition(":")[2]
        try:
            plain = socket.create_connection((host, int(port)), self.access.timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _wrapped(plain, self.access.tls, host) if self.access.tls else plain
        except (OSError, ValueError, OverflowError) as error:
            raise Unreachable(
                f"cannot connect to RocketMQ at {self.address}: {_reason(error)}{self._why_there()}"
            ) from error

    def _why_there(self) -> str:
        """Who told of an address that the configuration does not have, as the end of a sentence."""
        if not self.named_by.startswith("a name server"):
            return ""
        return f"; {self.named_by} names that address: it has to be reachable from here (brokerIP1)"

    def frame(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> tuple[int, bytes]:
        """A signed request of ours and its opaque number, not sent yet."""
        return self.frame_of(
            code, encode_fields(sign_fields(text_fields(fields), body, self.access.credential)), body
        )

    def frame_of(self, code: int, fields: str, body: bytes) -> tuple[int, bytes]:
        """The same of fields that are written already. They must be signed where `signs` is true."""
        self._opaque += 1
        return self._opaque, request(code, self._opaque, fields, body)

    @property
    def signs(self) -> bool:
        """Whether requests are signed, because an access key is configured."""
        return self.access.signs

    def send(self, data: bytes | bytearray) -> None:
        """Send request frames; raises ConnectionLost."""
        try:
            outbound.send_all(self._socket, data, self.access.timeout, self.writing)
        except OSError as error:
            raise self._lost(error) from error

    def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send one request; its opaque number comes back in the answer."""
        opaque, data = self.frame(code, fields, body)
        self.send(data)
        return opaque

    def receive(self, wait: float | None = None) -> Frame | None:
        """The next answer; None when none came within `wait` seconds. Raises ConnectionLost.

        An answer that is on its way may take longer, up to a limit. Requests of the broker's own (transaction
        checks, consumer notices) are not for us: they are dropped.
        """
        deadline = time.monotonic() + (self.access.timeout if wait is None else wait)
        while not self._answers:
            came = self._read(left := deadline - time.monotonic())
            if not self._answers and left <= (-_PATIENCE * self.access.timeout if came else 0):
                return None
        return self._answers.popleft()

    def take_answers(self) -> list[Frame]:
        """The answers that are there. Raises ConnectionLost."""
        if not self._answers:
            self._read(0.0)
        found = list(self._answers)
        self._answers.clear()
        return found

    def has_answer(self) -> bool:
        """Whether `receive` has something without waiting for the network."""
        pending = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return bool(self._answers or pending)

    def fileno(self) -> int:
        """For select()."""
        return self._socket.fileno()

    def _wait_about(self, seconds: float) -> None:
        """How long the socket waits, changed only where it differs: each system call gives the interpreter
        away to the thread that writes."""
        now = self._socket.gettimeout() or 0.0
        if not now / 1.1 <= seconds <= 2 * now:
            self._socket.settimeout(seconds)

    def _read(self, wait: float) -> bool:
        try:
            self._wait_about(max(wait, 0.001))
            data = self._socket.recv(_CHUNK)
        except OSError as error:
            if is_pause(error):
                return False
            raise self._lost(error) from error
        if not data:
            raise self._lost(OSError("closed by the peer"))
        if not self._heard and (other := foreign(self.address, data, "RocketMQ", self.named_by)):
            raise self._lost(OSError(other))
        self._heard = True
        try:
            self._answers += (frame for frame in self._frames.feed(data) if frame.is_answer)
        except ProtocolError as error:
            raise self._lost(error) from error
        return True

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Frame:
        """One request and its answer; raises ConnectionLost when it does not come in time."""
        opaque = self.ask(code, fields, body)
        deadline = time.monotonic() + _PATIENCE * self.access.timeout
        while time.monotonic() < deadline and (answer := self.receive()) is not None:
            if answer.opaque == opaque:
                self.version = answer.version or self.version
                return answer
        raise self._lost(OSError(f"no answer within {self.access.timeout:g} s"))

    def _lost(self, error: Exception) -> ConnectionLost:
        self.close()
        return ConnectionLost(f"the connection to RocketMQ at {self.address} ended: {error}")

    @property
    def is_open(self) -> bool:
        """False once the connection has ended."""
        return not self._broken

    def close(self) -> None:
        """Let go of the socket. Never raises."""
        self._broken = True
        outbound.close(self._socket)


def _wrapped(plain: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _reason(error: OSError | ValueError | OverflowError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "give it a certificate of this address, or set ca_file and verify_host = false"
        is_name = error.verify_code in _OTHER_NAME
        return f"TLS failed: {error.verify_message}; {hint if is_name else 'is ca_file right?'}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}; is it a TLS port?"
    return error.strerror or str(error) if isinstance(error, OSError) else "write it as host:port"
