"""AMQP 0-9-1 frames: bytes in, deliveries and methods out. No I/O.

pika decodes the headers of every delivery, which costs half of a drain's time and loses types
(floats, out-of-range timestamps). Here a delivery stays as the broker encoded it; all other methods
are pika's.
"""

from struct import Struct
from typing import Any, NamedTuple

from pika import frame, spec

HEARTBEAT = frame.Heartbeat().marshal()
_FRAME_END = 0xCE
_METHOD, _HEADER, _BODY = spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY
_DELIVER = spec.Basic.Deliver.INDEX.to_bytes(4, "big")
_frame_header = Struct(">BHI").unpack_from
_body_size = Struct(">Q").unpack_from


class FrameError(Exception):
    """The bytes are no AMQP 0-9-1."""


class Delivery(NamedTuple):
    """One basic.deliver as it came: the method's payload, the property block, the body."""

    method: bytes
    block: bytes
    body: bytes


def encoded(channel: int, method: Any) -> bytes:
    """The frame of a method."""
    return bytes(frame.Method(channel, method).marshal())


class FrameReader:
    """Cuts one connection's bytes into `deliveries` and `methods`; the caller empties both lists.

    Only one channel may carry deliveries.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.methods: list[tuple[int, Any]] = []
        self._rest = b""
        self._method = b""
        self._block = b""
        self._parts: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; what is no whole frame yet is kept. Raises FrameError."""
        data = self._rest + data if self._rest else data
        at, end = 0, len(data)
        while end - at >= 8:
            kind, channel, size = _frame_header(data, at)
            start = at + 7
            stop = start + size
            if stop >= end:
                break
            if data[stop] != _FRAME_END:
                raise FrameError(f"a frame of type {kind} does not end where it says")
            at = stop + 1
            if kind == _BODY:
                self._take_body(data[start:stop])
            elif kind == _HEADER:
                self._take_header(data[start:stop])
            elif kind == _METHOD:
                self._take_method(channel, data[start:stop])
        self._rest = data[at:]

    def _take_method(self, channel: int, payload: bytes) -> None:
        if payload.startswith(_DELIVER):
            self._method = payload
            return
        method = spec.methods[int.from_bytes(payload[:4], "big")]()
        method.decode(payload, 4)
        self.methods.append((channel, method))

    def _take_header(self, payload: bytes) -> None:
        self._block = payload[12:]
        self._missing = _body_size(payload, 4)[0]
        if not self._missing:
            self.deliveries.append(Delivery(self._method, self._block, b""))

    def _take_body(self, payload: bytes) -> None:
        self._missing -= len(payload)
        if self._missing or self._parts:
            self._parts.append(payload)
            if self._missing:
                return
            payload = b"".join(self._parts)
            self._parts = []
        self.deliveries.append(Delivery(self._method, self._block, payload))
