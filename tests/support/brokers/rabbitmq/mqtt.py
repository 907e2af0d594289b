"""A client of MQTT 3.1.1, as far as tests need one."""

import socket
from types import TracebackType
from typing import NamedTuple

from support.waiting import PATIENCE

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK, _DISCONNECT = 1, 2, 3, 4, 8, 9, 14


class Published(NamedTuple):
    """A message as a subscriber gets it."""

    topic: str
    body: bytes
    qos: int
    is_retained: bool


class Client:
    """One connection as guest. A session that is kept outlives it."""

    def __init__(self, port: int, name: str, is_kept: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._file = self._socket.makefile("rb")
        flags = 0b1100_0000 | (0 if is_kept else 0b10)
        fields = _text("MQTT") + bytes([4, flags, 0, 0]) + _text(name) + _text("guest") + _text("guest")
        self._send(_CONNECT << 4, fields)
        assert self._take(_CONNACK)[1][1] == 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._send(_DISCONNECT << 4, b"")
        self._file.close()
        self._socket.close()

    def subscribe(self, topics: str) -> None:
        """With QoS 1."""
        self._send(_SUBSCRIBE << 4 | 2, b"\0\1" + _text(topics) + b"\1")
        assert self._take(_SUBACK)[1][2:] == b"\1"

    def publish(self, topic: str, body: bytes) -> None:
        """With QoS 1; returns when the broker has it."""
        self._send(_PUBLISH << 4 | 2, _text(topic) + b"\0\1" + body)
        self._take(_PUBACK)

    def receive(self) -> Published:
        """The next message, acknowledged."""
        first, content = self._take(_PUBLISH)
        size, qos = int.from_bytes(content[:2]), first >> 1 & 3
        topic, rest = content[2 : 2 + size].decode(), content[2 + size :]
        if qos:
            self._send(_PUBACK << 4, rest[:2])
            rest = rest[2:]
        return Published(topic, rest, qos, bool(first & 1))

    def _send(self, first: int, content: bytes) -> None:
        assert len(content) < 1 << 14
        size = [len(content)] if len(content) < 128 else [len(content) % 128 | 128, len(content) // 128]
        self._socket.sendall(bytes([first, *size]) + content)

    def _take(self, kind: int) -> tuple[int, bytes]:
        first, size, shift = self._file.read(1)[0], 0, 0
        while True:
            part = self._file.read(1)[0]
            size |= (part & 127) << shift
            shift += 7
            if part < 128:
                break
        assert first >> 4 == kind
        return first, self._file.read(size)


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2) + text.encode()
