"""The AMQP 0-9-1 content header's property block: bytes in, values out, and the way back. No I/O.

A block is the content header frame's payload from byte 12: two octets of property flags, then the
properties that the flags name (AMQP 0-9-1 section 4.2.6; the field types are those of RabbitMQ's
errata, read in `amqp_fields`). The block stays the truth; what `decode` shows is for eyes and rules:
strings as they are, numbers, tables and arrays as JSON. A death history is read by `amqp_deaths`.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from dlq.connectors.amqp_fields import CACHED_BYTES, READERS, SIZES, ends_at

EMPTY = b"\0\0"
"""The block of a message without any property."""
DELIVERY_HEADERS = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers that a quorum queue makes anew at each delivery; no part of the message."""

_STRING = ord("S")
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
    ends_at(at, end)


_SPANS: Mapping[str, Callable[[bytes, int], int]] = {
    _SHORT: lambda block, at: 1 + block[at],
    _TABLE: lambda block, at: 4 + int(_u32(block, at)[0]),
    _OCTET: lambda _block, _at: 1,
    _TIME: lambda _block, _at: 8,
}


def decode(block: bytes) -> Properties:
    """The values of a block; raises ValueError where it is cut short or of an unknown type."""
    try:
        return _decode(block)
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error


def _decode(block: bytes) -> Properties:
    properties: dict[str, str] = {}
    headers: dict[str, str] = {}
    table: dict[str, object] = {}
    at = 2
    for name, kind in _layout(_u16(block)[0]):
        if kind is _SHORT:
            start = at + 1
            at = start + block[at]
            properties[name] = block[start:at].decode("utf-8", "backslashreplace")
        elif kind is _OCTET:
            properties[name] = str(block[at])
            at += 1
        elif kind is _TIME:
            properties[name] = str(_u64(block, at)[0])
            at += 8
        else:
            start = at + 4
            at = start + _u32(block, at)[0]
            headers, table = _headers(block, start, at)
    ends_at(at, len(block))
    return Properties(properties, headers, table)


def _headers(block: bytes, at: int, end: int) -> tuple[dict[str, str], dict[str, object]]:
    """The header table in block[at:end]. Runs for every letter, so strings are read in place."""
    headers: dict[str, str] = {}
    table: dict[str, object] = {}
    value: object
    while at < end:
        kind = at + 1 + block[at]
        name = block[at + 1 : kind].decode("utf-8", "backslashreplace")
        if block[kind] == _STRING:
            start = kind + 5
            at = start + _u32(block, kind + 1)[0]
            text = value = block[start:at].decode("utf-8", "backslashreplace")
        else:
            value, at = READERS[block[kind]](block, kind + 1, 0)
            text = _text(value, block[kind:at])
        if name not in table:
            table[name] = value
            headers[name] = text
    ends_at(at, end)
    return headers, table


def _text(value: object, field: bytes) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict) and len(field) <= CACHED_BYTES:
        return _nested_text(field)
    # json.dumps takes 2 us for what str does in 0.1
    return str(value) if type(value) is int else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=512)
def _nested_text(field: bytes) -> str:
    return json.dumps(READERS[field[0]](field, 1, 0)[0], ensure_ascii=False)


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


def text_header(block: bytes, header: str) -> str | None:
    """The last header of a name, when it is a string; the others are not looked into. Raises ValueError."""
    found = None
    for name, start, stop in _parts(block):
        if name == "headers":
            content = block[start + 4 : stop]
            for field, _, kind, end in _spans(content):
                if field == header and content[kind] == _STRING:
                    found = content[kind + 5 : end].decode("utf-8", "backslashreplace")
    return found


def _kept(content: bytes, drop: Callable[[str], bool]) -> bytes:
    return b"".join([content[start:stop] for name, start, _, stop in _spans(content) if not drop(name)])


def _spans(content: bytes) -> Iterator[tuple[str, int, int, int]]:
    """(name, start, position of the type octet, end) of each field of a table."""
    at, end = 0, len(content)
    while at < end:
        start, kind = at, at + 1 + content[at]
        size = SIZES.get(content[kind])
        at = kind + 1 + (4 + _u32(content, kind + 1)[0] if size is None else size)
        yield content[start + 1 : kind].decode("utf-8", "backslashreplace"), start, kind, at
    ends_at(at, end)


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
