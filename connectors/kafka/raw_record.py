"""A Kafka record beside its value as one block of bytes: what `raw_properties` holds. No I/O.

All numbers are signed and big-endian; a length of -1 is null, which is not the same as empty.

    byte    1, the format
    byte    flags: VALUE_WAS_NULL, LOG_APPEND_TIME, HAS_ORIGINAL
    int64   timestamp in milliseconds, -1 where the record has none
    int32   length of the key, then the key
    int32   number of headers, and for each, in the record's order:
            int32 length of the name, the name in UTF-8, int32 length of the value, the value
    ...     with HAS_ORIGINAL: the same once more, of the record that a share group's dead letter points to
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

VALUE_WAS_NULL = 1
LOG_APPEND_TIME = 2
HAS_ORIGINAL = 4
_FORMAT = 1
_HEAD = struct.Struct(">BBq")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

SHORT = 256
"""Names and values below this are mostly those of other records, too: topics, classes, partitions."""
Headers = Sequence[tuple[str, bytes | None]]


class RawRecord(NamedTuple):
    """What a record is beside its value."""

    key: bytes | None
    headers: Headers
    timestamp: int = -1
    """Milliseconds since the epoch."""
    is_log_append: bool = False
    is_null: bool = False
    """It had no value: a tombstone where it has a key."""
    original: "RawRecord | None" = None


def _framed(name: str, value: bytes | None) -> bytes:
    text = name.encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(text)) + text + (_NULL if value is None else _LENGTH.pack(len(value)) + value)


_header = lru_cache(maxsize=4096)(_framed)


def encode(record: RawRecord) -> bytes:
    """The block."""
    original = record.original
    flags = (
        (VALUE_WAS_NULL if record.is_null else 0)
        | (LOG_APPEND_TIME if record.is_log_append else 0)
        | (HAS_ORIGINAL if original is not None else 0)
    )
    pack, key = _LENGTH.pack, record.key
    parts = [_HEAD.pack(_FORMAT, flags, record.timestamp)]
    parts += (_NULL,) if key is None else (pack(len(key)), key)
    parts.append(pack(len(record.headers)))
    for name, value in record.headers:
        is_short = len(name) < SHORT and (value is None or len(value) < SHORT)
        parts.append(_header(name, value) if is_short else _framed(name, value))
    if original is not None:
        parts.append(encode(original))
    return b"".join(parts)


def decode(block: bytes) -> RawRecord:
    """What `encode` was given. Raises ValueError for anything else."""
    try:
        record, end = _decoded(block, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no block of a Kafka record: {error}") from error
    if end != len(block):
        raise ValueError("no block of a Kafka record: something follows it")
    return record


def _decoded(block: bytes, at: int) -> tuple[RawRecord, int]:
    form, flags, timestamp = _HEAD.unpack_from(block, at)
    if form != _FORMAT:
        raise ValueError(f"a block of a Kafka record in format {form}, which this dlq does not know")
    key, at = _bytes_at(block, at + _HEAD.size)
    (count,) = _LENGTH.unpack_from(block, at)
    at += _LENGTH.size
    headers = []
    for _ in range(count):
        name, at = _bytes_at(block, at)
        value, at = _bytes_at(block, at)
        headers.append(((name or b"").decode("utf-8", "surrogateescape"), value))
    original = None
    if flags & HAS_ORIGINAL:
        original, at = _decoded(block, at)
    is_append, is_null = bool(flags & LOG_APPEND_TIME), bool(flags & VALUE_WAS_NULL)
    return RawRecord(key, headers, timestamp, is_append, is_null, original), at


def _bytes_at(block: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(block, at)
    start = at + _LENGTH.size
    if length < 0:
        return None, start
    if start + length > len(block):
        raise ValueError("no block of a Kafka record: it is cut")
    return block[start : start + length], start + length
