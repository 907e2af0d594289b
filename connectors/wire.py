"""A connection whose bytes we read ourselves: how it is opened, written to, read and ended, and in which
words.

A protocol's codec is fed bytes and gives frames, without a socket; its link is a wire that feeds it and says
what the frames mean. So what a peer may do to us is decided here, once for all protocols: who is silent,
drips, hangs up, takes nothing, speaks something else or more than it was asked for is left, for a reason of
one line.
"""

import contextlib
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from dlq.connectors.base import Writing, keep_no_mark
from dlq.connectors.net import outbound
from dlq.connectors.net.links import FrameError, LinkLostError, SilentLinkError
from dlq.connectors.net.protocols import foreign
from dlq.core.errors import DlqError
from dlq.core.text import for_terminal, shorten

_RECEIVE_BYTES = 2**18
_LOOK_SECONDS = 1.0
"""After which it is looked again whether an answer is late."""
_LONGEST_REASON = 300
_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_OTHER_NAME = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (openssl/x509_vfy.h)."""


class Peer(NamedTuple):
    """Whom a wire leads to, and the seconds in which it has to take something of what is sent (`timeout`), to
    say something while an answer is waited for (`silence`), and to have given the answer (`patience`)."""

    address: str
    protocol: str
    named_by: str
    """Who told of the address."""
    timeout: float
    silence: float
    patience: float


def connect(host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None) -> socket.socket:
    """Connect, with TLS or without. Raises OSError (see `why_unreachable`)."""
    opened = socket.create_connection((host, port), timeout)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return tls.wrap_socket(opened, server_hostname=host) if tls else opened
    except BaseException:
        opened.close()
        raise


def why_unreachable(error: BaseException, remedy: str = "give it a certificate of this address") -> str:
    """Return why there is no connection; `remedy`: what to do about a certificate of another name."""
    if isinstance(error, ssl.SSLCertVerificationError):
        is_name = error.verify_code in _OTHER_NAME
        return f"TLS failed: {error.verify_message}; {remedy if is_name else 'is ca_file right?'}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}; is ca_file right, and is it a TLS port?"
    return for_terminal(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def is_pause(error: Exception) -> bool:
    """Return whether a socket only waited in vain. A kernel that ends a connection of which nothing is
    acknowledged (ETIMEDOUT) raises a TimeoutError, too; who took that for a pause would meet an end of the
    stream next, as if the other side had closed it."""
    return isinstance(error, TimeoutError) and error.errno is None


def check_kept(kept: int, most: int) -> None:
    """Raise FrameError where more bytes, or answers, wait for whoever asks for them than may."""
    if kept > most:
        raise FrameError("the broker sends more than it was asked for")


class Wire:
    """One connection. Not safe for several threads. What ends it raises the error of `tell_end` or
    `tell_silence`, and it is `dead` then."""

    unsaid = ""
    """What it may mean that the connection ends before the peer has said anything that we understand."""

    def __init__(self, opened: socket.socket, peer: Peer) -> None:
        self.peer, self.patience = peer, peer.patience
        self.writing: Writing = keep_no_mark
        """Asked before anything goes to the socket."""
        self.heartbeat: tuple[float, bytes] = math.inf, b""
        """Seconds without a word of ours, and what is said then."""
        self.dead = self.has_spoken = False
        self.heard = self.sent = time.monotonic()
        self._socket = opened
        self._came: list[bytes] = []
        self._poll = select.poll()

    def feed(self, data: bytes) -> None:
        """Take what came. Raises FrameError."""
        raise NotImplementedError

    def tell_end(self, why: str) -> Exception:
        """Return the error of a connection that has ended."""
        return LinkLostError(why)

    def tell_silence(self, why: str) -> Exception:
        """Return the silence of a connection that is there, whose peer does not answer, or takes nothing."""
        return SilentLinkError(why)

    def say_goodbye(self) -> None:
        """Say what a protocol says before a connection is closed in order. May raise what ends it."""

    def last_words(self) -> str | None:
        """Return what the peer said of the end before it hung up."""
        return None

    def guard(self, unsent_seconds: float) -> None:
        """See `outbound.guard`."""
        outbound.guard(self._socket, unsent_seconds)

    def fileno(self) -> int:
        """Return the descriptor for select()."""
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        """Whether TLS has bytes that its socket does not show."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def ready(self, seconds: float, writing: bool = False) -> tuple[bool, bool]:
        """Return whether something can be read, and written, as soon as one of both is so."""
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if writing else 0))
        pending = self.pending
        found = dict(self._poll.poll(0 if pending else seconds * 1000)).get(self._socket.fileno(), 0)
        return pending or bool(found & ~select.POLLOUT), bool(found & select.POLLOUT)

    def write(self, data: bytes | bytearray | memoryview, until: float | None = None) -> None:
        """Write all of it; `until`: see `outbound.send_all`."""
        try:
            outbound.send_all(self._socket, data, self.peer.timeout, self.writing, until)
        except OSError as error:
            raise self.end(error) from error
        except BaseException:
            self.dead = True  # half a frame may be out
            raise
        self.sent = time.monotonic()

    def offer(self, data: memoryview) -> int:
        """Return how many of these bytes the socket takes at once. Nobody is asked before."""
        self.sent = time.monotonic()
        if self._socket.gettimeout():  # Python waits for room itself then, and is out of time
            self._socket.settimeout(0)
        try:
            return outbound.take(self._socket, data, 0)
        except OSError as error:
            raise self.end(error) from error

    def read(self, wait: float) -> bool:
        """Take what one read brings; whether anything came within about so many seconds."""
        if time.monotonic() - self.sent > self.heartbeat[0]:
            self.write(self.heartbeat[1])
        try:
            self._wait_about(max(wait, 0.001))
            # One step for the interpreter: Ctrl-C comes before bytes are taken or after they are kept.
            self._came.extend(map(self._socket.recv, (_RECEIVE_BYTES,)))
        except OSError as error:
            if not is_pause(error):
                raise self.end(error) from error
            if not self._came:
                return False
        try:
            while self._came:
                self._hear(self._came.pop(0))
        except FrameError as error:
            raise self.end(error) from error
        except DlqError:  # the broker's word, over a connection that may live
            raise
        except BaseException:
            self.dead = True
            raise
        return True

    def _wait_about(self, seconds: float) -> None:
        """Set it where it changes: each system call gives the interpreter away to the thread that writes."""
        now = self._socket.gettimeout() or 0.0
        if not now / 1.1 <= seconds <= 2 * now:
            self._socket.settimeout(seconds)

    def _hear(self, data: bytes) -> None:
        if not data:
            raise self.end(self.last_words() or "closed by the broker")
        self.heard, peer = time.monotonic(), self.peer
        if not self.has_spoken and (other := foreign(peer.address, data, peer.protocol, peer.named_by)):
            self.has_spoken = True
            raise FrameError(other)
        self.feed(data)
        self.has_spoken = True

    def wait_until(
        self, is_so: Callable[[], bool], *, patience: float | None = None, until: float = math.inf
    ) -> None:
        """Read until something is so. It may take `patience` seconds, or as long as an answer, and no longer
        than to the moment `until`."""
        seconds, began = self.patience if patience is None else patience, time.monotonic()
        while not is_so():
            now = time.monotonic()
            if now > min(until, began + seconds):
                raise self.give_up(f"no answer within {seconds:g} s")
            if now - max(began, self.heard) > self.peer.silence:
                raise self.give_up(f"no answer within {self.peer.silence:g} s")
            self.read(min(_LOOK_SECONDS, seconds, self.peer.silence))

    def end(self, why: object) -> Exception:
        """End the connection now, and return the error to raise."""
        if isinstance(why, OSError) and is_pause(why):
            return self.give_up(f"it takes nothing: {why}")
        self.dead = True
        said = (self.last_words() or why.strerror or str(why)) if isinstance(why, OSError) else str(why)
        reason = shorten(for_terminal(said), _LONGEST_REASON)
        return self.tell_end(reason + ("" if self.has_spoken else self.unsaid))

    def give_up(self, why: str) -> Exception:
        """Return the same because its peer is there and does not do what it was asked for."""
        self.dead = True
        return self.tell_silence(why + ("" if self.has_spoken else self.unsaid))

    def cut(self) -> None:
        """End it without a word, and drop what the kernel has not sent yet."""
        self.dead = True
        with contextlib.suppress(OSError):
            outbound.guard(self._socket)
        self._socket.close()

    def close(self) -> None:
        """Close in order, where the peer has all that was sent; never raises."""
        self.writing = keep_no_mark  # no letter goes out any more
        if not self.dead:
            with contextlib.suppress(DlqError, LinkLostError):
                self.say_goodbye()
        self.dead = True
        outbound.close(self._socket)
