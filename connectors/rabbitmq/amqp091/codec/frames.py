"""AMQP 0-9-1 frames: bytes in, deliveries and methods out. No I/O.

pika decodes the headers of every delivery, which costs half of a drain's time and loses types
(floats, out-of-range timestamps). Here a delivery stays as the broker encoded it; all other methods
are pika's.
"""

import struct
from struct import Struct
from typing import Any, NamedTuple

from pika import exceptions, frame, spec

from dlq.connectors.net.links import FrameError

HEARTBEAT = frame.Heartbeat().marshal()
MAX_FRAME = 131_072
"""Bytes of a frame, its head and end among them: what `link` agrees to. A content header may have more: the
broker cannot split it, and sends it all the same (3.10.8, 4.3.6) where a letter came by AMQP 1.0 or over a
connection that agreed on more."""
_MAX_BODY = 512 * 2**20
"""RabbitMQ's own hard limit (?MAX_MSG_SIZE of rabbit_common), for headers, too."""
_MOST_KEPT = _MAX_BODY + 2**28
_MOST_DELIVERIES = 2**16
"""Deliveries that nobody has taken yet, and their bytes: far above what a window is made for."""
_OBJECT = 256
"""Bytes that a delivery takes beside its content."""
_MOST_METHODS = 2**17
"""So many confirms no window has, nor a single read."""
_OVERHEAD = 8
_FRAME_END = 0xCE
_METHOD, _HEADER, _BODY = spec.FRAME_METHOD, spec.FRAME_HEADER, spec.FRAME_BODY
_BEAT = spec.FRAME_HEARTBEAT
_DELIVER = spec.Basic.Deliver.INDEX.to_bytes(4, "big")
_SMALLEST_HEADER = 14
"""Class, weight, body size and the property flags."""
_UNREADABLE = (
    KeyError, IndexError, ValueError, TypeError, OverflowError, RecursionError, struct.error,
    exceptions.AMQPError,
)  # fmt: skip
"""What pika raises at bytes that are none of its methods."""
_frame_header = Struct(">BHI").unpack_from
_body_size = Struct(">Q").unpack_from


class Delivery(NamedTuple):
    """One basic.deliver as it came: the method's payload, the property block, the body."""

    method: bytes
    block: bytes
    body: bytes


def encode_method(channel: int, method: Any) -> bytes:
    """Return the frame of a method."""
    return bytes(frame.Method(channel, method).marshal())


class FrameReader:
    """Cuts one connection's bytes into `deliveries` and `methods`; the caller empties both (`take`).

    Only one channel may carry deliveries.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.methods: list[tuple[int, Any]] = []
        self._rest: list[bytes] = []
        self._came = self._needed = 0
        self._method = b""
        self._block = b""
        self._parts = bytearray()
        """Joined as they come: a body may come in parts of one byte."""
        self._missing = 0
        self._kept = 0
        self._progressed = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes; what is no whole frame yet is kept. Raises FrameError."""
        self._rest.append(data)
        self._came += len(data)
        if self._came >= self._needed:  # a long frame is joined once
            self._cut(b"".join(self._rest))

    def _cut(self, data: bytes) -> None:
        at, end, self._needed = 0, len(data), _OVERHEAD
        while end - at >= _OVERHEAD:
            kind, channel, size = _frame_header(data, at)
            if size > (_MAX_BODY if kind == _HEADER else MAX_FRAME - _OVERHEAD):
                raise FrameError(f"a frame of {size} bytes, more than was agreed on")
            start = at + 7
            stop = start + size
            if stop >= end:
                self._needed = stop + 1 - at
                break
            if data[stop] != _FRAME_END:
                raise FrameError(f"a frame of type {kind} does not end where it says")
            at = stop + 1
            self._progressed = self._progressed or kind != _BEAT
            if kind == _BODY:
                self._take_body(data[start:stop])
            elif kind == _HEADER:
                self._take_header(data[start:stop])
            elif kind == _METHOD:
                self._take_method(channel, data[start:stop])
            elif kind != _BEAT:
                raise FrameError(f"a frame of type {kind}, which AMQP has not")
        self._rest, self._came = [data[at:]], end - at
        too_many = len(self.deliveries) > _MOST_DELIVERIES or len(self.methods) > _MOST_METHODS
        if too_many or self._kept > _MOST_KEPT:
            raise FrameError("the broker sends more than it was asked for")

    def _take_method(self, channel: int, payload: bytes) -> None:
        if payload.startswith(_DELIVER):
            self._method = payload
            return
        try:
            method = spec.methods[int.from_bytes(payload[:4], "big")]()
            method.decode(payload, 4)
        except _UNREADABLE as error:
            raise FrameError(f"a method that cannot be read ({type(error).__name__})") from error
        self.methods.append((channel, method))

    def _take_header(self, payload: bytes) -> None:
        if len(payload) < _SMALLEST_HEADER or self._missing:
            raise FrameError("a content header that is cut off, or in the middle of a body")
        self._block = payload[12:]
        self._missing = _body_size(payload, 4)[0]
        if self._missing > _MAX_BODY:
            raise FrameError(f"a message of {self._missing} bytes; the limit is {_MAX_BODY}")
        if not self._missing:
            self._deliver(b"")

    def _take_body(self, payload: bytes) -> None:
        if not 0 < len(payload) <= self._missing:
            raise FrameError("a body that is longer than its header says, or empty")
        self._missing -= len(payload)
        if self._missing or self._parts:
            self._parts += payload
            if self._missing:
                return
            payload = bytes(self._parts)
            self._parts = bytearray()
        self._deliver(payload)

    def _deliver(self, body: bytes) -> None:
        self.deliveries.append(Delivery(self._method, self._block, body))
        self._kept += _OBJECT + len(self._block) + len(body)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a delivery's body, and of a frame, that have not come wholly."""
        return len(self._parts) + self._came

    def has_progressed(self) -> bool:
        """Return whether more has come since the last time than heartbeats."""
        came = self._progressed or self._begins_with() not in (b"", bytes((_BEAT,)))
        self._progressed = False
        return came

    def _begins_with(self) -> bytes:
        return next((part[:1] for part in self._rest if part), b"")

    def take(self, most: int) -> list[Delivery]:
        """Take up to `most` deliveries, in order; they are kept no longer."""
        taken = self.deliveries[:most]
        del self.deliveries[:most]
        self._kept -= sum([_OBJECT + len(one.block) + len(one.body) for one in taken])
        return taken
