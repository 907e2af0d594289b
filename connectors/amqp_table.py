"""The AMQP 0-9-1 content header's property block: bytes in, values out, and the way back. No I/O.

A block is the content header frame's payload from byte 12: two octets of property flags, then the
properties that the flags name (AMQP 0-9-1 section 4.2.6; the field types are those of RabbitMQ's
errata). Nothing that a queue can hold makes `decode` guess: what has no text is shown like this,
and the block itself stays the truth.

    bytes that are no UTF-8   escaped: b"\\xff" is shown as the four characters \\xff
    timestamps (T)            ISO 8601; seconds, or milli- or microseconds where the size says so
    decimals (D)              their digits with the scale kept: 1.50
    tables, arrays, numbers   JSON
    NaN, infinity             the words nan, inf
    nesting deeper than 32    the words "(nested too deeply to be shown)"
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from dlq.core.clock import iso

EMPTY = b"\0\0"
"""The block of a message without any property."""
DELIVERY_HEADERS = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers that a quorum queue makes anew at each delivery; no part of the message."""

_DEPTH = 32
_TOO_DEEP = "(nested too deeply to be shown)"
_CACHED_BYTES = 4096
_SHORT, _TABLE, _OCTET, _TIME = "short string", "table", "octet", "timestamp"
_LAYOUT = (
    (1 << 15, "content_type", _SHORT),
    (1 << 14, "content_encoding", _SHORT),
    (1 << 13, "headers", _TABLE),
    (1 << 12, "delivery_mode", _OCTET),
    (1 << 11, "priority", _OCTET),
    (1 << 10, "correlation_id", _SHORT),
    (1 << 9, "reply_to", _SHORT),
    (1 << 8, "expiration", _SHORT),
    (1 << 7, "message_id", _SHORT),
    (1 << 6, "timestamp", _TIME),
    (1 << 5, "type", _SHORT),
    (1 << 4, "user_id", _SHORT),
    (1 << 3, "app_id", _SHORT),
    (1 << 2, "cluster_id", _SHORT),
)
_BIT = {name: bit for bit, name, _ in _LAYOUT}

_KIND = {name: kind for _, name, kind in _LAYOUT}

_u16 = struct.Struct(">H").unpack_from
_u16_of = struct.Struct(">H").pack
_u32 = struct.Struct(">I").unpack_from
_u32_of = struct.Struct(">I").pack
_u64 = struct.Struct(">Q").unpack_from


class Properties(NamedTuple):
    """A decoded block. Its tables and lists may be shared with other letters: never change them.

    `properties` are the basic properties by their AMQP names, numbers as digits (`timestamp` as it
    is on the wire); `headers` the header table as text, of duplicate names the first; `table` the
    same as values that JSON knows.
    """

    properties: dict[str, str]
    headers: dict[str, str]
    table: dict[str, object]


def instant(number: int) -> int | None:
    """Microseconds since the epoch of a timestamp field; None where no unit gives a sane date.

    AMQP says seconds; clients send milliseconds (13 digits) and microseconds (16 digits) too.
    """
    for limit, factor in ((10**11, 1_000_000), (10**14, 1000), (10**17, 1)):
        if 0 <= number < limit:
            return number * factor
    return None


_Read = Callable[[bytes, int, int], tuple[object, int]]
"""(data, position after the type octet, depth) -> (value, position after it)."""


def _scalar(form: str) -> _Read:
    packed = struct.Struct(">" + form)
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, at: int, _depth: int) -> tuple[object, int]:
        return unpack(data, at)[0], at + size

    return read


def _real(form: str) -> _Read:
    number = _scalar(form)

    def read(data: bytes, at: int, depth: int) -> tuple[object, int]:
        value, stop = number(data, at, depth)
        return value if isinstance(value, float) and isfinite(value) else str(value), stop

    return read


def _bool(data: bytes, at: int, _depth: int) -> tuple[object, int]:
    return data[at] != 0, at + 1


def _void(_data: bytes, at: int, _depth: int) -> tuple[object, int]:
    return None, at


def _timestamp(data: bytes, at: int, _depth: int) -> tuple[object, int]:
    number: int = _u64(data, at)[0]
    micros = instant(number)
    return number if micros is None else iso(micros), at + 8


def _decimal(data: bytes, at: int, _depth: int) -> tuple[object, int]:
    scale, unscaled = struct.unpack_from(">Bi", data, at)
    return str(Decimal(unscaled).scaleb(-scale)), at + 5


def _string(data: bytes, at: int, _depth: int) -> tuple[object, int]:
    stop = at + 4 + _u32(data, at)[0]
    return data[at + 4 : stop].decode("utf-8", "backslashreplace"), stop


def _nested(build: Callable[[bytes, int], object]) -> _Read:
    remembered = lru_cache(maxsize=512)(build)

    def read(data: bytes, at: int, depth: int) -> tuple[object, int]:
        stop = at + 4 + _u32(data, at)[0]
        if depth >= _DEPTH:
            return _TOO_DEEP, stop
        content = data[at + 4 : stop]
        # The x-death of thousands of letters is the same within a second.
        return (remembered if len(content) <= _CACHED_BYTES else build)(content, depth + 1), stop

    return read


def _array(content: bytes, depth: int) -> list[object]:
    items, at, end = [], 0, len(content)
    while at < end:
        value, at = _READERS[content[at]](content, at + 1, depth)
        items.append(value)
    _exactly(at, end)
    return items


def _table(content: bytes, depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    for name, _kind, _stop, value in _fields(content, depth):
        table.setdefault(name, value)
    return table


def _fields(content: bytes, depth: int) -> Iterator[tuple[str, int, int, object]]:
    """(name, position of the type octet, end, value) of each field."""
    at, end = 0, len(content)
    while at < end:
        kind = at + 1 + content[at]
        name = content[at + 1 : kind].decode("utf-8", "backslashreplace")
        value, at = _READERS[content[kind]](content, kind + 1, depth)
        yield name, kind, at, value
    _exactly(at, end)


def _exactly(at: int, end: int) -> None:
    if at != end:
        raise ValueError(f"a field ends {at - end} bytes beyond its table")


_READERS: dict[int, _Read] = {
    ord("t"): _bool,
    ord("b"): _scalar("b"),
    ord("B"): _scalar("B"),
    ord("s"): _scalar("h"),
    ord("U"): _scalar("h"),
    ord("u"): _scalar("H"),
    ord("I"): _scalar("i"),
    ord("i"): _scalar("I"),
    ord("l"): _scalar("q"),
    ord("L"): _scalar("q"),
    ord("f"): _real("f"),
    ord("d"): _real("d"),
    ord("D"): _decimal,
    ord("S"): _string,
    ord("x"): _string,
    ord("V"): _void,
    ord("T"): _timestamp,
    ord("F"): _nested(_table),
    ord("A"): _nested(_array),
}
_SIZES = {
    ord(kind): size
    for kind, size in zip("tbBsUuIilLfdDVT", (1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 4, 8, 5, 0, 8), strict=True)
}


@lru_cache(maxsize=512)
def _layout(flags: int) -> tuple[tuple[str, str], ...]:
    if flags & 3:
        raise ValueError(f"property flags {flags:#06x} name properties that AMQP 0-9-1 does not have")
    return tuple((name, kind) for bit, name, kind in _LAYOUT if flags & bit)


def _parts(block: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, start, stop) of each property in the block; raises ValueError, IndexError, struct.error."""
    at, end = 2, len(block)
    for name, kind in _layout(_u16(block)[0]):
        stop = at + _SPANS[kind](block, at)
        if stop > end:
            raise ValueError(f"the property block ends within {name}")
        yield name, at, stop
        at = stop
    _exactly(at, end)


_SPANS: Mapping[str, Callable[[bytes, int], int]] = {
    _SHORT: lambda block, at: 1 + block[at],
    _TABLE: lambda block, at: 4 + int(_u32(block, at)[0]),
    _OCTET: lambda _block, _at: 1,
    _TIME: lambda _block, _at: 8,
}


def decode(block: bytes) -> Properties:
    """The values of a block; raises ValueError where it is cut short or of an unknown type."""
    properties: dict[str, str] = {}
    headers: dict[str, str] = {}
    table: dict[str, object] = {}
    try:
        for name, start, stop in _parts(block):
            if name == "headers":
                headers, table = _headers(block[start + 4 : stop])
            elif name == "timestamp":
                properties[name] = str(_u64(block, start)[0])
            elif name in ("delivery_mode", "priority"):
                properties[name] = str(block[start])
            else:
                properties[name] = block[start + 1 : stop].decode("utf-8", "backslashreplace")
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    return Properties(properties, headers, table)


def _headers(content: bytes) -> tuple[dict[str, str], dict[str, object]]:
    headers: dict[str, str] = {}
    table: dict[str, object] = {}
    for name, kind, stop, value in _fields(content, 0):
        if name in table:
            continue
        table[name] = value
        if isinstance(value, str):
            headers[name] = value
        elif isinstance(value, list | dict) and stop - kind <= _CACHED_BYTES:
            headers[name] = _nested_text(content[kind:stop])
        else:
            headers[name] = json.dumps(value, ensure_ascii=False)
    return headers, table


@lru_cache(maxsize=512)
def _nested_text(field: bytes) -> str:
    return json.dumps(_READERS[field[0]](field, 1, 0)[0], ensure_ascii=False)


def stable(block: bytes) -> bytes:
    """The block without what differs from delivery to delivery, for a message's identity.

    Also without an empty header table: dropping x-delivery-count may leave one.
    """
    flags = block[0] << 8
    if not flags & _BIT["headers"]:
        return block
    at = 2
    for earlier in (1 << 15, 1 << 14):
        if flags & earlier:
            at += 1 + block[at]
    if (
        b"x-delivery-count" not in block
        and b"x-acquired-count" not in block
        and block[at : at + 4] != bytes(4)
    ):
        return block
    return edit(block, drop_headers=DELIVERY_HEADERS.__contains__)


def edit(
    block: bytes,
    drop_headers: Callable[[str], bool] = lambda _name: False,
    set_headers: Mapping[str, str | int] = MappingProxyType({}),
    drop_properties: Iterable[str] = (),
    set_properties: Mapping[str, str | int] = MappingProxyType({}),
) -> bytes:
    """The block with some headers and properties taken out or set; all others byte for byte.

    A header that is set replaces all of its name and stands last: text as a long string, a number
    as a signed 64-bit one. A header table that has no header left is left out. Raises ValueError as
    `decode` does, and when a property is too long for its type or a name is longer than 255 bytes.
    """
    try:
        parts = {name: block[start:stop] for name, start, stop in _parts(block)}
        content = _kept(
            parts.get("headers", bytes(4))[4:], lambda name: name in set_headers or drop_headers(name)
        )
        content += b"".join([_short(name) + _field(value) for name, value in set_headers.items()])
        parts["headers"] = _u32_of(len(content)) + content
        for name in drop_properties if content else ("headers", *drop_properties):
            parts.pop(name, None)
        parts |= {name: _property(name, value) for name, value in set_properties.items()}
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    flags = sum(_BIT[name] for name in parts)
    return _u16_of(flags) + b"".join([parts[name] for name in _BIT if name in parts])


def _kept(content: bytes, drop: Callable[[str], bool]) -> bytes:
    kept, at, end = [], 0, len(content)
    while at < end:
        start, kind = at, at + 1 + content[at]
        size = _SIZES.get(content[kind])
        at = kind + 1 + (4 + _u32(content, kind + 1)[0] if size is None else size)
        if not drop(content[start + 1 : kind].decode("utf-8", "backslashreplace")):
            kept.append(content[start:at])
    _exactly(at, end)
    return b"".join(kept)


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise ValueError(f"{text[:40]!r}... is longer than the 255 bytes of a short string")
    return bytes((len(encoded),)) + encoded


def _field(value: str | int) -> bytes:
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    encoded = value.encode()
    return b"S" + _u32_of(len(encoded)) + encoded


def _property(name: str, value: str | int) -> bytes:
    kind = _KIND[name]
    if kind is _SHORT:
        return _short(str(value))
    return struct.pack(">B" if kind is _OCTET else ">Q", int(value))
