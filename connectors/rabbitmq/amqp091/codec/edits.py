"""Property blocks of AMQP 0-9-1: edited, where all that is not touched stays byte for byte, or made anew, for
letters that came without one. No I/O.

Edits run for every letter that is sent again; nothing is decoded but the names of its headers.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from dlq.connectors.rabbitmq.amqp091.codec import typed
from dlq.connectors.rabbitmq.amqp091.codec.blocks import (
    BIT,
    KIND,
    MOST_NAMES,
    OCTET,
    SHORT,
    layout,
    parts,
    shape_of,
)
from dlq.connectors.rabbitmq.amqp091.codec.fields import SIZES, ends_at
from dlq.core.clock import from_iso
from dlq.core.headers.failure_headers import fix_text
from dlq.core.headers.frameworks import Inside

EMPTY = b"\0\0"
"""The block of a message without any property."""

_NUMBERS = {bytes((code,)) for code in b"bBsUuIilLfdD"}
_TEXT = b"S"
_STRING = ord(_TEXT)
_u16_of = struct.Struct(">H").pack
_u32 = struct.Struct(">I").unpack_from
_u32_of = struct.Struct(">I").pack
_Names = tuple[str, ...]


def edit(
    block: bytes,
    drop_headers: Callable[[str], bool] = lambda _name: False,
    set_headers: Mapping[str, str | int | bytes] = MappingProxyType({}),
    drop_properties: Iterable[str] = (),
    set_properties: Mapping[str, str | int] = MappingProxyType({}),
    mend_headers: Mapping[str, Inside] = MappingProxyType({}),
) -> bytes:
    """Return the block with some headers and properties taken out or set; all others byte for byte.

    A header that is set replaces all of its name and stands last: text as a long string, a number as a signed
    64-bit one, bytes as the encoded field that they are. One that is fixed stands last, too, and keeps its
    type. A header table that has no header left is left out. Raises ValueError for a block that is damaged as
    far as it is read, and when a property is too long for its type or a name is longer than 255 bytes.
    """
    shape = shape_of(block)
    ends, bounds = shape.ends, shape.bounds
    try:
        without, told = (*set_headers, *mend_headers), tuple(set_properties.items())
        cut_out = _cut_out if len(shape.names) <= MOST_NAMES else _cut_out.__wrapped__
        cut = cut_out(shape.flags, shape.names, drop_headers, without, tuple(drop_properties), told)
        pieces = [block[ends[first] : ends[last]] for first, last in cut.kept]
        if mend_headers:
            pieces += _mended_fields(block[ends[0] : ends[-1]], mend_headers)
        for name, value in set_headers.items():
            pieces += _name(name), *_value(value)
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    content = b"".join(pieces)
    flags, size = (cut.flags | BIT["headers"], _u32_of(len(content))) if content else (cut.flags, b"")
    whole = [_u16_of(flags), *_parts(block, bounds, cut.front), size, content]
    return b"".join(whole + _parts(block, bounds, cut.behind))


_Run = tuple[int, int]
"""Neighbours that stay: the place of the first, and that behind the last."""


class _Cut(NamedTuple):
    """What stays of a block, or is set."""

    flags: int
    """Without that of the headers."""
    kept: Sequence[_Run]
    """Of the headers."""
    front: Sequence[_Run | bytes]
    """Of the properties in front of them."""
    behind: Sequence[_Run | bytes]


@lru_cache(maxsize=256)
def _cut_out(
    before: int,
    names: _Names,
    drops: Callable[[str], bool],
    without: _Names,
    drop_properties: _Names,
    set_properties: tuple[tuple[str, str | int], ...],
) -> _Cut:
    """Return the same for all blocks with these flags and headers."""
    told = {name: _property(name, value) for name, value in set_properties}
    flags = before & ~BIT["headers"]
    for name in drop_properties:
        flags &= ~BIT[name]
    for name in told:
        flags |= BIT[name]
    places = {name: place for place, (name, _) in enumerate(layout(before))}
    pieces = {name: told.get(name) or (places[name], places[name] + 1) for name, _ in layout(flags)}
    front = [piece for name, piece in pieces.items() if BIT[name] > BIT["headers"]]
    return _Cut(flags, _runs(names, drops, False, without), front, [*pieces.values()][len(front) :])


def _parts(block: bytes, ends: Sequence[int], pieces: Sequence[_Run | bytes]) -> list[bytes]:
    return [one if type(one) is bytes else block[ends[one[0]] : ends[one[1]]] for one in pieces]


def header_names(block: bytes) -> tuple[str, ...]:
    """Return the names of its headers in their order, of which some may come twice. Raises ValueError."""
    return shape_of(block).names


def short_texts(block: bytes) -> dict[str, str]:
    """Return the properties that are short strings. Raises ValueError."""
    shape = shape_of(block)
    return {
        name: block[start + 1 : end].decode("utf-8", "backslashreplace")
        for (name, kind), (start, end) in zip(layout(shape.flags), pairwise(shape.bounds), strict=True)
        if kind is SHORT
    }


def some_headers(block: bytes, wanted: Callable[[str], bool]) -> bytes:
    """Return a block of those headers alone that are wanted. Raises ValueError."""
    shape = shape_of(block)
    runs = _runs if len(shape.names) <= MOST_NAMES else _runs.__wrapped__
    content = b"".join(_parts(block, shape.ends, runs(shape.names, wanted, True)))
    return _u16_of(BIT["headers"]) + _u32_of(len(content)) + content if content else EMPTY


def block_of(headers: Mapping[str, str | int | bytes], properties: Mapping[str, str | int]) -> bytes:
    """Return the block of these headers (bytes: encoded already) and properties, whose timestamp is in
    seconds or ISO 8601. Raises ValueError."""
    timestamp = str(properties.get("timestamp", "0"))
    micros = None if timestamp.isdigit() else from_iso(timestamp)
    told = {} if micros is None else {"timestamp": micros // 1_000_000}
    return edit(EMPTY, set_headers=headers, set_properties={**properties, **told})


def typed_block(headers: Mapping[str, Any], properties: Mapping[str, str | int]) -> bytes | None:
    """Return the same of headers in JSON's types, which AMQP knows, too; None where all are texts, or AMQP
    cannot say them."""
    if all(isinstance(value, str) for value in headers.values()):
        return None
    try:
        return block_of({name: typed.encode_field(value) for name, value in headers.items()}, properties)
    except (ValueError, RecursionError):
        return None


def _mended_fields(content: bytes, wanted: Mapping[str, Inside]) -> Iterator[bytes]:
    start = 0
    for name, kind, end in _fields(content):
        if name in wanted:
            yield content[start:kind] + _fixed_value(content[kind:end], wanted[name], ())
        start = end


def _fixed_value(field: bytes, inside: Inside, at: tuple[str, ...]) -> bytes:
    """Return a value with the octet of its type before it: a table without what goes, a number set to 0."""
    kind = field[:1]
    if inside.is_zero(at) and kind in _NUMBERS:
        return kind + bytes(len(field) - 1)
    if kind == b"S":
        return b"".join(_value(fix_text(field[5:].decode("utf-8", "surrogateescape"), _narrow(inside, at))))
    if kind != b"F":
        return field
    content, start, pieces = field[5:], 0, []
    for name, place, end in _fields(content):
        path = (*at, name)
        if not inside.is_gone(path):
            pieces.append(content[start:place] + _fixed_value(content[place:end], inside, path))
        start = end
    table = b"".join(pieces)
    return kind + _u32_of(len(table)) + table


def _narrow(inside: Inside, at: tuple[str, ...]) -> Inside:
    """Return what is said of the value there, counted from it."""
    return inside if not at else Inside(zero=((),) if inside.is_zero(at) else ())


@lru_cache(maxsize=256)
def _runs(names: _Names, asked: Callable[[str], bool], wanted: bool, without: _Names = ()) -> Sequence[_Run]:
    """Return which headers are `wanted` by the answer for their names, but for some: letters of one kind all
    have the same names."""
    runs: list[_Run] = []
    for place, name in enumerate(names):
        if name in without or asked(name) is not wanted:
            continue
        first = runs.pop()[0] if runs and runs[-1][1] == place else place
        runs.append((first, place + 1))
    return runs


def header_table(block: bytes) -> bytes:
    """Return the fields of the header table, without its size; empty: there is none. Raises ValueError."""
    try:
        found = ((start, stop) for name, start, stop in parts(block) if name == "headers")
        start, stop = next(found, (0, 0))
    except (IndexError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    return block[start + 4 : stop]


def text_header(block: bytes, header: str) -> str | None:
    """Return the last header of a name, if it is a string; others are not looked into. Raises ValueError."""
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
    """Yield (name, position of the type octet, end) of each field of a table."""
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


def _value(value: str | int | bytes) -> tuple[bytes, ...]:
    """Return an encoded field, or its pieces."""
    if isinstance(value, str):
        encoded = value.encode("utf-8", "surrogateescape")
        return _TEXT, _u32_of(len(encoded)), encoded
    return (value if isinstance(value, bytes) else b"l" + struct.pack(">q", value),)


@lru_cache(maxsize=1024)
def _property(name: str, value: str | int) -> bytes:
    kind = KIND[name]
    if kind is SHORT:
        return _short(str(value))
    return struct.pack(">B" if kind is OCTET else ">Q", int(value))
