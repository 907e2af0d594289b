"""Edits of an AMQP 0-9-1 property block that copy all they do not touch, byte for byte. No I/O.

This runs for every letter that is sent again; nothing is decoded but the names of its headers.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from dlq.connectors.rabbitmq.amqp.fields import SIZES, ends_at
from dlq.connectors.rabbitmq.amqp.layout import BIT, KIND, OCTET, SHORT, SPANS, layout, parts

EMPTY = b"\0\0"
"""The block of a message without any property."""

_STRING = ord("S")
_NO_TABLE = bytes(4)
_u16 = struct.Struct(">H").unpack_from
_u16_of = struct.Struct(">H").pack
_u32 = struct.Struct(">I").unpack_from
_u32_of = struct.Struct(">I").pack


def edit(
    block: bytes,
    drop_headers: Callable[[str], bool] = lambda _name: False,
    set_headers: Mapping[str, str | int] = MappingProxyType({}),
    drop_properties: Iterable[str] = (),
    set_properties: Mapping[str, str | int] = MappingProxyType({}),
) -> bytes:
    """The block with some headers and properties taken out or set; all others byte for byte.

    A header that is set replaces all of its name and stands last: text as a long string, a number
    as a signed 64-bit one. A header table that has no header left is left out. Raises ValueError
    for a block that is damaged as far as it is read, and when a property is too long for its type
    or a name is longer than 255 bytes.
    """
    try:
        flags = _u16(block)[0]
        kept: dict[str, bytes] = {}
        at = 2
        for name, kind in layout(flags):
            start = at
            at += SPANS[kind](block, at)
            kept[name] = block[start:at]
        ends_at(at, len(block))
        content = b"".join(
            [
                *_kept(kept.get("headers", _NO_TABLE), _doomed(drop_headers, frozenset(set_headers))),
                *[_name(name) + _value(value) for name, value in set_headers.items()],
            ]
        )
        kept["headers"] = _u32_of(len(content)) + content
        flags = flags | BIT["headers"] if content else flags & ~BIT["headers"]
        for name in drop_properties:
            flags &= ~BIT[name]
        for name, wanted in set_properties.items():
            kept[name] = _property(name, wanted)
            flags |= BIT[name]
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    return _u16_of(flags) + b"".join([kept[name] for name, _ in layout(flags)])


def _kept(table: bytes, doomed: Callable[[bytes], bool]) -> list[bytes]:
    """The fields that stay, neighbours in one piece."""
    pieces, run, at, end = [], 4, 4, len(table)
    while at < end:
        start, kind = at, at + 1 + table[at]
        size = _FIXED[table[kind]]
        at = kind + 5 + _u32(table, kind + 1)[0] if size is None else kind + 1 + size
        if doomed(table[start + 1 : kind]):
            if run < start:
                pieces.append(table[run:start])
            run = at
    ends_at(at, end)
    pieces.append(table[run:])
    return pieces


@lru_cache(maxsize=64)
def _doomed(drop: Callable[[str], bool], replaced: frozenset[str]) -> Callable[[bytes], bool]:
    """Whether the header with this name goes; the names of a million letters are few."""

    @lru_cache(maxsize=4096)
    def goes(encoded: bytes) -> bool:
        name = encoded.decode("utf-8", "backslashreplace")
        return name in replaced or drop(name)

    return goes


_FIXED = [SIZES.get(kind) for kind in range(256)]


def text_header(block: bytes, header: str) -> str | None:
    """The last header of a name, when it is a string; the others are not looked into. Raises ValueError."""
    found = None
    for name, start, stop in parts(block):
        if name == "headers":
            for field, kind, end in _fields(block[start + 4 : stop]):
                if field == header:
                    found = (
                        block[start + 4 + kind + 5 : start + 4 + end]
                        if block[start + 4 + kind] == _STRING
                        else None
                    )
    return None if found is None else found.decode("utf-8", "backslashreplace")


def _fields(content: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, position of the type octet, end) of each field of a table."""
    at, end = 0, len(content)
    while at < end:
        start, kind = at, at + 1 + content[at]
        size = SIZES.get(content[kind])
        at = kind + 5 + _u32(content, kind + 1)[0] if size is None else kind + 1 + size
        yield content[start + 1 : kind].decode("utf-8", "backslashreplace"), kind, at
    ends_at(at, end)


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise ValueError(f"{text[:40]!r}... is longer than the 255 bytes of a short string")
    return bytes((len(encoded),)) + encoded


_name = lru_cache(maxsize=1024)(_short)


def _value(value: str | int) -> bytes:
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    encoded = value.encode()
    return b"S" + _u32_of(len(encoded)) + encoded


@lru_cache(maxsize=1024)
def _property(name: str, value: str | int) -> bytes:
    kind = KIND[name]
    if kind is SHORT:
        return _short(str(value))
    return struct.pack(">B" if kind is OCTET else ">Q", int(value))
