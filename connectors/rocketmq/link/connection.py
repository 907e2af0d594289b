"""One connection to a name server or a broker: requests out, answers in."""

import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from dlq.connectors.rocketmq.link import remoting
from dlq.connectors.wire import Peer, Wire, connect, why_unreachable
from dlq.core.errors import ConnectionLost, Unreachable
from dlq.core.runtime.patience import WHOLE_ANSWER
from dlq.core.values.hosts import host_of

_T = TypeVar("_T")
_REMEDY = "give it a certificate of this address, or set ca_file and verify_host = false"


@dataclass(frozen=True)
class Access:
    """How to talk to a cluster: who we are, how long we wait (seconds), and whether by TLS."""

    credential: remoting.Credential | None = None
    timeout: float = 10.0
    tls: ssl.SSLContext | None = None

    @property
    def signs(self) -> bool:
        """Whether requests carry a signature, as access control lists want it; it covers all their fields."""
        return self.credential is not None


class Link(Wire):
    """A connection that keeps several requests in flight. Not safe for several threads."""

    def __init__(
        self, address: str, access: Access, brief: bool = False, named_by: str = "the configuration"
    ) -> None:
        """Connect to `host:port`; raises Unreachable. `brief`: see `FrameReader`; `named_by`: who told of
        the address."""
        self.address, self.access, self.timeout = address, access, access.timeout
        self.version = 0
        self._frames = remoting.FrameReader(brief=brief)
        self._answers: deque[remoting.Frame] = deque()
        self._opaque = 0
        patience = WHOLE_ANSWER * self.timeout
        peer = Peer(address, "RocketMQ", named_by, self.timeout, self.timeout, patience)
        super().__init__(self._connect(named_by), peer)

    def _connect(self, named_by: str) -> socket.socket:
        host, port = host_of(self.address), self.address.rpartition(":")[2]
        try:
            return connect(host, int(port), self.timeout, self.access.tls)
        except (OSError, ValueError, OverflowError) as error:
            why = why_unreachable(error, _REMEDY) if isinstance(error, OSError) else "write it as host:port"
            if named_by.startswith("a name server"):  # an address that the configuration does not have
                why += f"; {named_by} names that address: it has to be reachable from here (brokerIP1)"
            raise Unreachable(f"cannot connect to RocketMQ at {self.address}: {why}") from error

    def is_over(self) -> bool:
        """Return whether it has ended, perhaps unseen: a server ends what is silent for two minutes."""
        with suppress(ConnectionLost):
            if not self.dead and self.ready(0.0)[0]:
                self.read(0.0)
        return self.dead

    def frame(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> tuple[int, bytes]:
        """Return a signed request of ours and its opaque number, not sent yet."""
        return self.frame_of(
            code,
            remoting.encode_fields(
                remoting.sign_fields(remoting.text_fields(fields), body, self.access.credential)
            ),
            body,
        )

    def frame_of(self, code: int, fields: str, body: bytes) -> tuple[int, bytes]:
        """Return the same of fields that are written already. They must be signed where `signs` is true."""
        self._opaque += 1
        return self._opaque, remoting.request(code, self._opaque, fields, body)

    @property
    def signs(self) -> bool:
        """Whether requests are signed, because an access key is configured."""
        return self.access.signs

    def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        """Send one request; its opaque number comes back in the answer."""
        opaque, data = self.frame(code, fields, body)
        self.write(data)
        return opaque

    def receive(self, wait: float | None = None) -> remoting.Frame | None:
        """Return the next answer; None when none came within `wait` seconds. Raises ConnectionLost.

        An answer that is on its way may take longer, up to a limit.
        """
        deadline = time.monotonic() + (self.timeout if wait is None else wait)
        while not self._answers:
            came = self.read(left := deadline - time.monotonic())
            if not self._answers and left <= (-self.peer.patience if came else 0):
                return None
        return self._answers.popleft()

    def answers(self, asked: Mapping[int, _T]) -> Iterator[tuple[_T, remoting.Frame]]:
        """Yield the answer to each of these, by opaque number, with what it is for. Raises BrokerError."""
        for _ in range(len(asked)):
            if (answer := self.receive()) is None:
                raise ConnectionLost(f"{self.address} has stopped answering")
            with remoting.understood(self.address):
                what = asked[answer.opaque]
            yield what, answer

    def take_answers(self) -> list[remoting.Frame]:
        """Return the answers that are there. Raises ConnectionLost."""
        if not self._answers:
            self.read(0.0)
        found = list(self._answers)
        self._answers.clear()
        return found

    def has_answer(self) -> bool:
        """Return whether `receive` has something without waiting for the network."""
        return bool(self._answers or self.pending)

    def feed(self, data: bytes) -> None:
        """Requests of the broker's own (transaction checks, consumer notices) are not for us."""
        self._answers += [frame for frame in self._frames.feed(data) if frame.is_answer]

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> remoting.Frame:
        """Send one request and return its answer. Raises ConnectionLost when it does not come in time."""
        opaque = self.ask(code, fields, body)
        deadline = time.monotonic() + self.peer.patience
        while time.monotonic() < deadline and (answer := self.receive()) is not None:
            if answer.opaque == opaque:
                self.version = answer.version or self.version
                return answer
        raise self.give_up(f"no answer within {self.timeout:g} s")

    def tell_end(self, why: str) -> ConnectionLost:
        """Return the address as error texts name it; nobody closes a link that has ended."""
        self.close()
        return ConnectionLost(f"the connection to RocketMQ at {self.address} ended: {why}")

    tell_silence = tell_end
