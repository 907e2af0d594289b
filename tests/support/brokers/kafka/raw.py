"""Requests that no client library makes: records as no client would write them, and quotas."""

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from support.brokers.hostile_kafka import record, text
from support.waiting import PATIENCE

__all__ = ["RawHeaders", "batch", "produce", "quota", "record"]

RawHeaders = Sequence[tuple[bytes, bytes | None]]
_PRODUCE, _ALTER_QUOTAS = 0, 49
_OK = 0


def _table() -> list[int]:
    found = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        found.append(n)
    return found


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Castagnoli's."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def batch(
    records: Sequence[bytes], timestamp: int, attributes: int = 0, packed: bytes | None = None
) -> bytes:
    """A batch (version 2); `packed` are the records compressed, as `attributes` say."""
    rest = struct.pack(
        ">hiqqqhii", attributes, len(records) - 1, timestamp, timestamp, -1, -1, -1, len(records)
    ) + (b"".join(records) if packed is None else packed)
    head = struct.pack(">ibI", -1, 2, crc32c(rest))
    return struct.pack(">qi", 0, len(head) + len(rest)) + head + rest


def call(bootstrap: str, api: int, version: int, body: bytes) -> bytes:
    """One request; returns the answer behind its correlation id."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as link, link.makefile("rb") as answers:
        request = struct.pack(">hhi", api, version, 7) + text("raw") + body
        link.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)[4:]


def produce(bootstrap: str, topic: str, batch: bytes, partition: int = 0) -> int:
    """Append a batch; returns its first offset."""
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    answer = call(bootstrap, _PRODUCE, 8, body)
    error, offset = struct.unpack_from(">hq", answer, 4 + 2 + len(topic.encode()) + 4 + 4)
    assert error == _OK, f"produce answered {error}"
    return int(offset)


@contextmanager
def quota(bootstrap: str, name: str, value: float, client: str = "dlq") -> Iterator[None]:
    """A quota of clients of that id, until the end of the block."""
    _alter(bootstrap, name, value, client, False)
    try:
        yield
    finally:
        _alter(bootstrap, name, 0, client, True)


def _alter(bootstrap: str, name: str, value: float, client: str, remove: bool) -> None:
    entity = struct.pack(">i", 1) + text("client-id") + text(client)
    change = struct.pack(">i", 1) + text(name) + struct.pack(">d?", value, remove)
    answer = call(bootstrap, _ALTER_QUOTAS, 0, struct.pack(">i", 1) + entity + change + b"\0")
    (error,) = struct.unpack_from(">h", answer, 8)
    assert error == _OK, f"quotas answered {error}"
