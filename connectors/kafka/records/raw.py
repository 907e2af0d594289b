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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from typing import NamedTuple

from dlq.core.columns import Column, Constant, collapse
from dlq.core.layouts import Layouts

VALUE_WAS_NULL = 1
LOG_APPEND_TIME = 2
HAS_ORIGINAL = 4
_FORMAT = 1
_HEAD = struct.Struct(">BBq")
_UP_TO_KEY = struct.Struct(">BBqi")
_LENGTH = struct.Struct(">i")
_TIME = 8
_NULL = _LENGTH.pack(-1)

Headers = Sequence[tuple[str, bytes | None]]
Alike = Sequence[tuple[str, Column]]
"""The headers of several records, which all have the same names in the same order: a name, and its values."""


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


def alike(records: Sequence[Headers]) -> Alike | None:
    """Return the headers of one or more records name by name, or None where they differ in their names."""
    if len(set(map(len, records))) > 1:
        return None
    found: list[tuple[str, Column]] = []
    for pairs in map(collapse, zip(*records, strict=True)):
        if isinstance(pairs, Constant):
            name, value = pairs.value
            found.append((name, Constant(value, len(records))))
            continue
        names, values = zip(*pairs, strict=True)
        if names.count(names[0]) < len(names):
            return None
        found.append((names[0], values))
    return found


def encode(record: RawRecord) -> bytes:
    """Return the block."""
    flags = (VALUE_WAS_NULL if record.is_null else 0) | (LOG_APPEND_TIME if record.is_log_append else 0)
    block = _block(flags, record.timestamp, record.key, _frame(record.headers))
    return block if record.original is None else with_original(block, record.original)


def with_original(block: bytes, original: RawRecord) -> bytes:
    """Return the block of a dead letter that points to this one."""
    return block[:1] + bytes([block[1] | HAS_ORIGINAL]) + block[2:] + encode(original)


def encode_all(
    flags: Column,
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    headers: Sequence[Headers],
    same_names: Alike | None,
) -> list[bytes]:
    """Return the blocks of records without an original; `same_names` are `headers` once more, name by
    name."""
    framed = [*map(_frame, headers)] if same_names is None else _frame_by_name(same_names, len(headers))
    return [*map(_block, flags, timestamps, keys, framed)]


def _block(flags: int, timestamp: int, key: bytes | None, framed_headers: bytes) -> bytes:
    if key is None:
        return _UP_TO_KEY.pack(_FORMAT, flags, timestamp, -1) + framed_headers
    return _UP_TO_KEY.pack(_FORMAT, flags, timestamp, len(key)) + key + framed_headers


def _frame(headers: Headers) -> bytes:
    return b"".join([_LENGTH.pack(len(headers)), *starmap(_header, headers)])


def _frame_by_name(headers: Alike, rows: int) -> Column:
    """Frame once what all share: it stands between the values that differ."""
    shared = [_literal(_LENGTH.pack(len(headers)))]
    differing: list[Column] = []
    for name, values in headers:
        if isinstance(values, Constant):
            shared.append(_literal(_header(name, values.value)))
            continue
        is_null, lengths = None in values, {len(value) for value in values if value is not None}
        if is_null or len(lengths) > 1:
            shared.append(_literal(_name(name)) + b"%b")
            differing.append([*map(_value, values)])
        else:
            shared.append(_literal(_name(name) + _LENGTH.pack(lengths.pop())) + b"%b")
            differing.append(values)
    whole = b"".join(shared)
    return [*map(whole.__mod__, zip(*differing, strict=True))] if differing else Constant(whole % (), rows)


def _literal(text: bytes) -> bytes:
    """Escape a text for what is formatted."""
    return text.replace(b"%", b"%%")


def _header(name: str, value: bytes | None) -> bytes:
    return _name(name) + _value(value)


@lru_cache(maxsize=1024)
def _name(name: str) -> bytes:
    return _value(name.encode("utf-8", "surrogateescape"))


def _value(value: bytes | None) -> bytes:
    return _NULL if value is None else _LENGTH.pack(len(value)) + value


def decode(block: bytes) -> RawRecord:
    """Return what `encode` was given. Raises ValueError for anything else."""
    if (found := _layouts.find(block)) is not None:
        return _fill(*found)
    try:
        record, end = _decode_at(block, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no block of a Kafka record: {error}") from error
    if end != len(block):
        raise ValueError("no block of a Kafka record: something follows it")
    sizes = tuple([None if value is None else len(value) for _, value in record.headers])
    if record.original is None and None not in sizes:
        names = tuple([name for name, _ in record.headers])
        key = None if record.key is None else len(record.key)
        layout = _Layout(record._replace(key=None, headers=(), timestamp=-1), names, key, sizes)
        _layouts.note(block, layout, _spans)
    return record


class Sent(NamedTuple):
    """What goes back of a record beside its value: names and values apart, as most are not looked at."""

    key: bytes | None
    names: tuple[str, ...]
    values: Sequence[bytes | None]
    around: Headers = ()
    """Those of the dead letter that points to it."""


def sent_of(record: RawRecord) -> Sent:
    """Return what goes back of a record; of a share group's letter what it points to."""
    sent, around = (record, ()) if record.original is None else (record.original, record.headers)
    return Sent(sent.key, tuple([name for name, _ in sent.headers]), [v for _, v in sent.headers], around)


def sent_in(block: bytes) -> Sent:
    """Return `sent_of` what `decode` returns, without its pairs. Raises ValueError."""
    if (found := _layouts.find(block)) is None:
        return sent_of(decode(block))
    layout, values = found
    key, first = (None, 1) if layout.key is None else (values[1], 2)
    return Sent(key, layout.names, values[first:])


class _Layout(NamedTuple):
    """How a block without an original, and without a header that is null, is laid out."""

    bare: RawRecord
    """The rest of the record."""
    names: tuple[str, ...]
    key: int | None
    """Its length, and those of the headers."""
    sizes: tuple[int | None, ...]


_layouts: Layouts[_Layout] = Layouts()


def _fill(layout: _Layout, values: tuple[bytes, ...]) -> RawRecord:
    timestamp = int.from_bytes(values[0], "big", signed=True)
    key, first = (None, 1) if layout.key is None else (values[1], 2)
    _, _, _, is_append, is_null, _ = layout.bare
    return RawRecord(key, [*zip(layout.names, values[first:], strict=True)], timestamp, is_append, is_null)


def _spans(_block: bytes, layout: _Layout) -> Iterator[tuple[int, int]]:
    at = _UP_TO_KEY.size
    yield _HEAD.size - _TIME, _HEAD.size
    if layout.key is not None:
        yield at, (at := at + layout.key)
    at += _LENGTH.size
    for name, size in zip(layout.names, layout.sizes, strict=True):
        at += len(_name(name)) + _LENGTH.size
        yield at, (at := at + (size or 0))


def _decode_at(block: bytes, at: int, is_original: bool = False) -> tuple[RawRecord, int]:
    form, flags, timestamp = _HEAD.unpack_from(block, at)
    if form != _FORMAT:
        raise ValueError(f"a block of a Kafka record in format {form}, which this dlq does not know")
    key, at = _bytes_at(block, at + _HEAD.size)
    (count,) = _LENGTH.unpack_from(block, at)
    at += _LENGTH.size
    headers = []
    unpack = _LENGTH.unpack_from
    for _ in range(count):  # not by `_bytes_at`, which took a tenth of a replay
        (length,) = unpack(block, at)
        start = at + _LENGTH.size
        at = start + length if length > 0 else start
        name = block[start:at].decode("utf-8", "surrogateescape")
        (length,) = unpack(block, at)
        start = at + _LENGTH.size
        at = start + length if length > 0 else start
        headers.append((name, None if length < 0 else block[start:at]))
    if at > len(block):
        raise ValueError("no block of a Kafka record: it is cut")
    original = None
    if flags & HAS_ORIGINAL:
        if is_original:
            raise ValueError("no block of a Kafka record: an original has no original")
        original, at = _decode_at(block, at, is_original=True)
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
