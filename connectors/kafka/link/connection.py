"""A connection of our own to a broker, for what the client library cannot ask or say: TLS, SASL, one question
at a time."""

import base64
import hashlib
import hmac
import os
import ssl
import struct
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from dlq.connectors.kafka.link.fetch import text
from dlq.connectors.net.links import FrameError
from dlq.connectors.wire import Peer, Wire, connect, why_unreachable
from dlq.core.errors import AccessDenied, ConnectionLost
from dlq.core.runtime.patience import WHOLE_ANSWER

_METADATA, _METADATA_VERSION = 3, 4
_NO_TOPICS = bytes(5)
"""An empty list, and that none is to be made."""
_HANDSHAKE, _AUTHENTICATE = 17, 36
_HEAD = 8
"""Bytes of an answer's length, and of the number of its question."""
_LARGEST = 2**30
"""Bytes of an answer: a batch may be longer than was asked for, and no batch is longer than this."""
_LARGEST_LOGIN = 2**16
_LEAST_ROUNDS, _MOST_ROUNDS = 4096, 2**20
"""Of a login by SCRAM: fewer give the password away (ScramMechanism.java), and Kafka makes 16,384 at most."""
_DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Access(NamedTuple):
    """How to talk to a cluster; `mechanism` is None without SASL."""

    timeout: float
    tls: Callable[[], ssl.SSLContext] | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""


def scram_proof(digest: str, password: str, first: str, told: str) -> str:
    """Return the client's last message (RFC 5802), to its first one without the header and to the server's
    answer. Raises ValueError, LookupError where that is none."""
    salted, last = _salt_password(digest, password, first, told)
    client = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client).digest(), f"{first},{told},{last}".encode(), digest)
    proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
    return f"{last},p={base64.b64encode(proof).decode()}"


def scram_signature(digest: str, password: str, first: str, told: str) -> str:
    """Return what a server that knows the password says at the end. Raises ValueError, LookupError."""
    salted, last = _salt_password(digest, password, first, told)
    server = hmac.digest(salted, b"Server Key", digest)
    signature = hmac.digest(server, f"{first},{told},{last}".encode(), digest)
    return f"v={base64.b64encode(signature).decode()}"


def _salt_password(digest: str, password: str, first: str, told: str) -> tuple[bytes, str]:
    """Return the salted password, and the client's last message without its proof."""
    fields = dict(part.split("=", 1) for part in told.split(",") if "=" in part)
    if not fields["r"].startswith(first.rpartition("r=")[2]):
        raise ValueError("it answers another login")
    rounds = int(fields["i"])
    if not _LEAST_ROUNDS <= rounds <= _MOST_ROUNDS:
        raise ValueError(f"it wants {rounds} rounds")
    salt = base64.b64decode(fields["s"])
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, rounds), f"c=biws,r={fields['r']}"


class Link(Wire):
    """A connection to one broker, for one question at a time."""

    def __init__(self, host: str, port: int, access: Access) -> None:
        """Connect and sign in. Raises ConnectionLost, AccessDenied."""
        self._place, self._number, self._buffer = f"{host}:{port}", 0, bytearray()
        try:
            opened = connect(host, port, access.timeout, access.tls() if access.tls else None)
        except OSError as error:
            raise ConnectionLost(f"{self._place}: {why_unreachable(error)}") from error
        wait = access.timeout
        super().__init__(
            opened, Peer(self._place, "Kafka", "url or the cluster", wait, wait, WHOLE_ANSWER * wait)
        )
        if access.mechanism is not None:
            self._enter(access, access.mechanism)

    def _enter(self, access: Access, mechanism: str) -> None:
        try:
            self._log_in(access, mechanism)
        except (struct.error, ValueError) as error:
            self.close()
            raise ConnectionLost(f"{self._place}: something that is no login of Kafka's") from error
        except BaseException:
            self.close()
            raise

    def ask(self, api: int, version: int, body: bytes, most: int = _LARGEST) -> bytes:
        """Return what is answered, without its head, in `most` bytes. Raises ConnectionLost."""
        self._number, self._most = self._number + 1, most
        data = struct.pack(">hhi", api, version, self._number) + text("dlq") + body
        self.write(struct.pack(">i", len(data)) + data)
        self.wait_until(lambda: len(self._buffer) >= self._length() > 0)
        answer = bytes(self._buffer[_HEAD : self._length()])
        self._buffer.clear()
        return answer

    def feed(self, data: bytes) -> None:
        """Take an answer, or a part of one."""
        self._buffer += data
        if len(self._buffer) >= 4 and not _HEAD <= self._length() <= 4 + self._most:
            raise FrameError(f"an answer of {self._length() - 4} bytes")

    def _length(self) -> int:
        """Return the length of the answer that has begun to come; 0 where its own is not there."""
        return 4 + struct.unpack_from(">i", self._buffer)[0] if len(self._buffer) >= 4 else 0

    def tell_end(self, why: str) -> ConnectionLost:
        """See `Wire`."""
        return ConnectionLost(f"{self._place}: {why}")

    tell_silence = tell_end

    def _log_in(self, access: Access, mechanism: str) -> None:
        answer = self.ask(_HANDSHAKE, 1, text(mechanism), _LARGEST_LOGIN)
        (error,) = struct.unpack_from(">h", answer)
        if error:
            raise AccessDenied(f"{self._place} takes no {mechanism}; check mechanism")
        if mechanism == "PLAIN":
            self._authenticate(f"\0{access.user}\0{access.password}".encode())
        else:
            self._scram(access, _DIGESTS[mechanism])

    def _scram(self, access: Access, digest: str) -> None:
        nonce = base64.b64encode(os.urandom(24)).decode()
        first = f"n={access.user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        told = self._authenticate(f"n,,{first}".encode()).decode()
        try:
            last = scram_proof(digest, access.password, first, told)
            wanted = scram_signature(digest, access.password, first, told)
        except (ValueError, LookupError) as error:
            raise AccessDenied(f"{self._place} answers no login by {access.mechanism}") from error
        if not hmac.compare_digest(self._authenticate(last.encode()), wanted.encode()):
            raise AccessDenied(
                f"{self._place} does not know the password that it asks for: it is another server"
            )

    def _authenticate(self, token: bytes) -> bytes:
        answer = self.ask(_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token, _LARGEST_LOGIN)
        error, length = struct.unpack_from(">hh", answer)
        if error:
            raise AccessDenied(f"{self._place} refused the user; check user and password")
        at = 4 + max(0, length)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size]


def brokers_named_by(host: str, port: int, access: Access) -> list[tuple[str, int]]:
    """Host and port of each broker that a server names (Metadata, version 4, which brokers take since 0.11).
    Raises ConnectionLost, AccessDenied."""
    with closing(Link(host, port, access)) as link:
        answer = link.ask(_METADATA, _METADATA_VERSION, _NO_TOPICS)
    found, at = [], 8
    try:
        (count,) = struct.unpack_from(">i", answer, 4)
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, at + 4)
            at += 6 + length
            name, (number, rack) = answer[at - length : at].decode(), struct.unpack_from(">ih", answer, at)
            found.append((name, number))
            at += 6 + max(0, rack)
    except (struct.error, ValueError) as error:
        raise ConnectionLost(f"{host}:{port}: an answer that names no brokers") from error
    return found
