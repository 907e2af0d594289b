"""Headers of records as they lie in a partition, where the client library cannot say them. No I/O.

The library takes names for C strings in UTF-8: it fails at other bytes, and ends a name at NUL. So a fetch of
our own gives the batches, and what is in them is read here. It is of version 10, which brokers take since
2.1: below that, those before 4.0 give nothing of a topic that is set to zstd (KafkaApis, error 76).
Sources: the protocol guide of Kafka, and its implementation, DefaultRecordBatch and DefaultRecord.
"""

import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa

from dlq.connectors.kafka.records.raw import Headers

API, VERSION = 1, 10
_WAIT_MS, _LEAST, _UNCOMMITTED = 500, 1, 0
_NONE, _NO_SESSION = -1, (0, -1)
LARGEST, MOST_HEADERS = 2**28, 2**22
"""Bytes of what a fetch unpacks to, and headers in it: each takes 150 bytes, however short it is."""
_LONGEST_NUMBER = 10
"""Bytes of a number, of which each has seven bits."""
_BATCH = struct.Struct(">qiibIhiqqqhii")
_AFTER_LENGTH = 12
_WITH_HEADERS = 2
_DAMAGE = (
    struct.error, IndexError, zlib.error, OSError, OverflowError, MemoryError, pa.ArrowException,
)  # fmt: skip
_SNAPPY = b"\x82SNAPPY\0"
"""Begins blocks of the Java library, each of which has its length before it."""
_CODECS = {2: "snappy", 3: "lz4", 4: "zstd"}


class Unreadable(ValueError):
    """An answer that cannot be taken apart."""


def text(value: str) -> bytes:
    """Return a string of the protocol."""
    return struct.pack(">h", len(value.encode())) + value.encode()


def request(topic: str, partition: int, offset: int, most: int) -> bytes:
    """Return a fetch from there, of about `most` bytes."""
    return b"".join((
        struct.pack(">iiiibiii", _NONE, _WAIT_MS, _LEAST, most, _UNCOMMITTED, *_NO_SESSION, 1),
        text(topic),
        struct.pack(">iiiqqii", 1, partition, _NONE, offset, _NONE, most, 0),
    ))  # fmt: skip


def headers_in(answer: bytes) -> dict[int, Headers]:
    """Offset -> the headers of the records in the answer to a fetch of one partition; names that are no UTF-8
    have surrogates. Raises Unreadable."""
    try:
        found: dict[int, Headers] = {}
        room, number = LARGEST, 0
        for base, attributes, count, records in _batches(_records(answer)):
            plain = _plain(attributes & 7, records, room)
            room -= len(plain) if attributes & 7 else 0
            if room <= 0:
                raise Unreadable(f"it unpacks to more than {LARGEST} bytes")
            at, whole = 0, memoryview(plain)
            for _ in range(count):
                length, at = _varint(whole, at)
                if length <= 0:
                    raise Unreadable("a record of no length")
                offset, headers = _record(whole[at : at + length], MOST_HEADERS - number)
                found[base + offset] = headers
                number += len(headers)
                at += length
        return found
    except _DAMAGE as error:
        raise Unreadable(f"a batch cannot be taken apart: {type(error).__name__}") from error


def spans_in(answer: bytes) -> list[tuple[int, int, bool]]:
    """(first offset, offset behind the last, whether each between them has its record) of the batches in the
    answer to a fetch of one partition. Raises Unreadable.

    A batch that was compacted keeps its first and last offset, and has fewer records than offsets.
    """
    found = []
    try:
        data, at = _records(answer), 0
        while at + _BATCH.size <= len(data):
            base, length, _, magic, _, _, last, *_, count = _BATCH.unpack_from(data, at)
            at += _AFTER_LENGTH + length
            if length <= 0 or magic != _WITH_HEADERS:
                raise Unreadable("a batch of an older format, which does not tell")
            found.append((base, base + last + 1, count == last + 1))
    except (struct.error, IndexError) as error:
        raise Unreadable(f"a batch cannot be taken apart: {type(error).__name__}") from error
    return found


def _records(answer: bytes) -> bytes:
    (length,) = struct.unpack_from(">h", answer, 14)
    error, aborted = struct.unpack_from(">8xh24xi", answer, 16 + length)
    if error:
        raise Unreadable(f"a fetch was answered with error {error}")
    at = 16 + length + 38 + 16 * max(0, aborted)
    (size,) = struct.unpack_from(">i", answer, at)
    return answer[at + 4 : at + 4 + size]


def _batches(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(first offset, attributes, number of records, records) of each that is there whole."""
    at = 0
    while at + _BATCH.size <= len(data):
        base, length, _, magic, _, attributes, *_, count = _BATCH.unpack_from(data, at)
        end = at + _AFTER_LENGTH + length
        if length <= 0 or end > len(data):
            return
        if magic == _WITH_HEADERS:  # older ones have none
            yield base, attributes, count, data[at + _BATCH.size : end]
        at = end


def _plain(codec: int, records: bytes, room: int) -> bytes:
    """Unpack records, cut at `room` bytes, which are more than none."""
    if codec == 0:
        return records
    if codec == 1:
        unpacking = zlib.decompressobj(31)
        return unpacking.decompress(records, room)
    if codec == 2:
        return b"".join(_snappy(records, room))
    if codec not in _CODECS:
        raise Unreadable(f"compression {codec} is not known")
    with pa.CompressedInputStream(pa.BufferReader(records), _CODECS[codec]) as stream:
        plain: bytes = stream.read(room)
        return plain


def _snappy(records: bytes, room: int) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    if not records.startswith(_SNAPPY):
        yield codec.decompress(records, _snappy_size(records), asbytes=True)
        return
    at = len(_SNAPPY) + 8
    while at < len(records) and room > 0:
        (size,) = struct.unpack_from(">i", records, at)
        block = records[at + 4 : at + 4 + size]
        plain = codec.decompress(block, _snappy_size(block), asbytes=True)
        yield plain
        room -= len(plain)
        at += 4 + size


def _snappy_size(block: bytes) -> int:
    """Return how long a block is when it is unpacked: it begins with that, seven bits a byte."""
    size = shift = at = 0
    while True:
        size |= (block[at] & 0x7F) << shift
        if block[at] < 0x80:
            break
        at, shift = at + 1, shift + 7
        if at == _LONGEST_NUMBER:
            raise Unreadable("a number that is too long")
    if size > LARGEST:
        raise Unreadable(f"a block of {size} bytes")
    return size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a signed number, and where it ends."""
    value = 0
    for shift in range(0, 7 * _LONGEST_NUMBER, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise Unreadable("a number that is too long")


def _record(data: memoryview, most: int) -> tuple[int, Headers]:
    """(offset in the batch, headers, of which there are so many at most)."""
    _, at = _varint(data, 1)
    offset, at = _varint(data, at)
    for _ in ("key", "value"):
        length, at = _varint(data, at)
        at += max(0, length)
    count, at = _varint(data, at)
    if count > most:
        raise Unreadable(f"it has more than {MOST_HEADERS} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(data, at)
        value, at = _bytes(data, at)
        headers.append(((name or b"").decode("utf-8", "surrogateescape"), value))
    return offset, headers


def _bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise IndexError("it is cut")
    return bytes(data[at : at + length]), at + length
