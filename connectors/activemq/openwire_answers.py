"""What an ActiveMQ broker answers by OpenWire, bytes in: greeting, receipts, refusals (see `openwire`)."""

import struct
from typing import NamedTuple

from dlq.connectors.activemq.openwire import MAGIC, WIREFORMAT_INFO
from dlq.core.errors import ConnectionLost

MAX_FRAME = 64 * 2**20
"""Nothing that a broker answers a sender is longer."""
_CONNECTION_ERROR, _EXCEPTION_RESPONSE = 16, 31
_RESPONSES = (30, _EXCEPTION_RESPONSE, 32, 33, 34)
_NO_OPENWIRE = "the broker sent something that is no OpenWire; is this its port?"


class Answer(NamedTuple):
    """What a broker said. `receipt` is 0 for what answers no command of ours; `error` is a Java exception."""

    receipt: int
    error: str | None


class Reader:
    """Cuts what a broker sends into answers; what a sender need not know is left out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.version = 0
        """The broker's, once it has greeted."""

    def feed(self, data: bytes) -> list[Answer]:
        """Take bytes; return the answers that are whole. Raises ConnectionLost where it is no OpenWire."""
        self._buffer += data
        found: list[Answer] = []
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if size > MAX_FRAME or not size:
                raise ConnectionLost(_NO_OPENWIRE)
            if len(self._buffer) < 4 + size:
                break
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            found += self._answers(frame)
        return found

    def _answers(self, frame: bytes) -> list[Answer]:
        kind = frame[0]
        try:
            if not self.version:
                self.version = _version(frame)
            elif kind in _RESPONSES:
                (receipt,) = struct.unpack_from(">i", frame, 6)
                return [Answer(receipt, _exception(frame, 10) if kind == _EXCEPTION_RESPONSE else None)]
            elif kind == _CONNECTION_ERROR:
                return [Answer(0, _exception(frame, 6))]
        except (struct.error, IndexError) as error:
            raise ConnectionLost("the broker sent an OpenWire command that is cut off") from error
        return []


def _version(frame: bytes) -> int:
    if frame[0] != WIREFORMAT_INFO or frame[1:9] != MAGIC:
        raise ConnectionLost(_NO_OPENWIRE)
    version: int = struct.unpack_from(">i", frame, 9)[0]
    return version


def _exception(frame: bytes, at: int) -> str:
    """The class and the message of a Throwable."""
    if frame[at : at + 1] != b"\1":
        return "no reason given"
    parts: list[str] = []
    at += 1
    for _ in range(2):
        (is_there,) = struct.unpack_from(">?", frame, at)
        at += 1
        if is_there:
            (size,) = struct.unpack_from(">H", frame, at)
            at += 2
            parts.append(frame[at : at + size].decode("utf-8", "replace"))
            at += size
    return ": ".join(parts)
