"""Edits of an AMQP 0-9-1 property block that copy all they do not touch, byte for byte. No I/O.

This runs for every letter that is sent again; nothing is decoded but the names of its headers.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from dlq.connectors.rabbitmq.amqp091.codec.fields import CACHED_BYTES, DEPTH, READERS, SIZES, ends_at
from dlq.connectors.rabbitmq.amqp091.codec.layout import BIT, KIND, OCTET, SHORT, SPANS, layout, parts
from dlq.core.failure_headers import mend_text
from dlq.core.frameworks import Inside

EMPTY = b"\0\0"
"""The block of a message without any property."""

_NUMBERS = {bytes((code,)) for code in b"bBsUuIilLfdD"}
_STRING, _TABLE = ord("S"), ord("F")
_NESTED = b"FA"
_NO_TABLE = bytes(4)
_u16 = struct.Struct(">H").unpack_from
_u16_of = struct.Struct(">H").pack
_u32 = struct.Struct(">I").unpack_from
_u32_of = struct.Struct(">I").pack


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
    64-bit one, bytes as the encoded field that they are. One that is mended stands last, too, and keeps its
    type. A header table that has no header left is left out. Raises ValueError for a block that is damaged as
    far as it is read, and when a property is too long for its type or a name is longer than 255 bytes.
    """
    opened = _open(block)
    kept, flags = dict(opened.pieces), opened.flags
    try:
        stay = _chooser(drop_headers, False, frozenset({*set_headers, *mend_headers}))
        content = b"".join(
            [
                _joined(opened, stay(opened.names)),
                *(_mended(opened.table[4:], mend_headers) if mend_headers else ()),
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


_Names = tuple[str, ...]


class _Opened(NamedTuple):
    """A block taken apart as far as its headers' names; all of it can be read."""

    flags: int
    pieces: Mapping[str, bytes]
    """Property -> its octets."""
    table: bytes
    """The headers, behind the four octets of their size."""
    names: _Names
    """As they are shown."""
    ends: tuple[int, ...]
    """Where in the table the first header begins, and where each ends."""


@lru_cache(maxsize=2)
def _open(block: bytes) -> _Opened:
    """The same block is asked about again and again. Raises ValueError."""
    try:
        flags, at = _u16(block)[0], 2
        pieces: dict[str, bytes] = {}
        for name, kind in layout(flags):
            start = at
            at += 1 + block[at] if kind is SHORT else SPANS[kind](block, at)
            pieces[name] = block[start:at]
        ends_at(at, len(block))
        table = pieces.get("headers", _NO_TABLE)
        names, ends, at, end = [], [4], 4, len(table)
        while at < end:
            start, place = at + 1, at + 1 + table[at]
            kind_of_value = table[place]
            if kind_of_value == _STRING:
                at = place + 5 + _u32(table, place + 1)[0]
            elif (size := _FIXED[kind_of_value]) is not None:
                at = place + 1 + size
            else:
                at = place + 5 + _u32(table, place + 1)[0]
                (_known_field if at - place <= CACHED_BYTES else _check_field)(table[place:at])
            names.append(table[start:place])
            ends.append(at)
        ends_at(at, end)
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    texts = (_known_texts if len(names) <= _MOST_NAMES else _texts)(tuple(names))
    return _Opened(flags, pieces, table, texts, tuple(ends))


def _check_field(field: bytes) -> None:
    """Raise where reading it raises."""
    _check_fields(field, 0, len(field), False, 0)


def _check_fields(data: bytes, at: int, end: int, is_table: bool, depth: int) -> None:
    """Walks through the values, which most letters have of their own, and makes none."""
    while at < end:
        if is_table:
            at += 1 + data[at]
        kind = data[at]
        if (size := _FIXED[kind]) is not None:
            at += 1 + size
            continue
        if kind not in READERS:
            raise KeyError(kind)
        start, at = at + 5, at + 5 + _u32(data, at + 1)[0]
        if kind in _NESTED and depth < DEPTH:
            _check_fields(data, start, at, kind == _TABLE, depth + 1)
    ends_at(at, end)


_known_field = lru_cache(maxsize=512)(_check_field)


def header_names(block: bytes) -> tuple[str, ...]:
    """Return the names of its headers in their order, of which some may come twice. Raises ValueError."""
    return _open(block).names


def short_texts(block: bytes) -> dict[str, str]:
    """Return the properties that are short strings. Raises ValueError."""
    return {
        name: piece[1:].decode("utf-8", "backslashreplace")
        for name, piece in _open(block).pieces.items()
        if KIND[name] is SHORT
    }


def some_headers(block: bytes, wanted: Callable[[str], bool]) -> bytes:
    """Return a block of those headers alone that are wanted. Raises ValueError."""
    opened = _open(block)
    content = _joined(opened, _chooser(wanted, True)(opened.names))
    return _u16_of(BIT["headers"]) + _u32_of(len(content)) + content if content else EMPTY


def _texts(names: tuple[bytes, ...]) -> _Names:
    return tuple(name.decode("utf-8", "backslashreplace") for name in names)


_MOST_NAMES = 100
"""What follows from the names of a table with no more of them is remembered."""
_known_texts = lru_cache(maxsize=256)(_texts)


def _mended(content: bytes, wanted: Mapping[str, Inside]) -> Iterator[bytes]:
    start = 0
    for name, kind, end in _fields(content):
        if name in wanted:
            yield content[start:kind] + _mended_value(content[kind:end], wanted[name], ())
        start = end


def _mended_value(field: bytes, inside: Inside, at: tuple[str, ...]) -> bytes:
    """Return a value with the octet of its type before it: a table without what goes, a number set to 0."""
    kind = field[:1]
    if inside.is_zero(at) and kind in _NUMBERS:
        return kind + bytes(len(field) - 1)
    if kind == b"S":
        return _value(mend_text(field[5:].decode("utf-8", "surrogateescape"), _from(inside, at)))
    if kind != b"F":
        return field
    content, start, pieces = field[5:], 0, []
    for name, place, end in _fields(content):
        path = (*at, name)
        if not inside.is_gone(path):
            pieces.append(content[start:place] + _mended_value(content[place:end], inside, path))
        start = end
    table = b"".join(pieces)
    return kind + _u32_of(len(table)) + table


def _from(inside: Inside, at: tuple[str, ...]) -> Inside:
    """Return what is said of the value there, counted from it."""
    return inside if not at else Inside(zero=((),) if inside.is_zero(at) else ())


_Runs = Sequence[tuple[int, int]]
"""Neighbouring headers: the place of the first, and that behind the last."""


def _joined(opened: _Opened, runs: _Runs) -> bytes:
    return b"".join([opened.table[opened.ends[first] : opened.ends[last]] for first, last in runs])


@lru_cache(maxsize=64)
def _chooser(
    asked: Callable[[str], bool], wanted: bool, without: frozenset[str] = frozenset()
) -> Callable[[_Names], _Runs]:
    """Return which headers are `wanted` by the answer for their names, but for some: letters of one kind all
    have the same names."""

    def choose(names: _Names) -> _Runs:
        runs: list[tuple[int, int]] = []
        for place, name in enumerate(names):
            if name in without or asked(name) is not wanted:
                continue
            first = runs.pop()[0] if runs and runs[-1][1] == place else place
            runs.append((first, place + 1))
        return runs

    remembered = lru_cache(maxsize=256)(choose)
    return lambda names: (remembered if len(names) <= _MOST_NAMES else choose)(names)


_FIXED = [SIZES.get(kind) for kind in range(256)]


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


def _value(value: str | int | bytes) -> bytes:
    if isinstance(value, str):
        encoded = value.encode("utf-8", "surrogateescape")
        return b"S" + _u32_of(len(encoded)) + encoded
    return value if isinstance(value, bytes) else b"l" + struct.pack(">q", value)


@lru_cache(maxsize=1024)
def _property(name: str, value: str | int) -> bytes:
    kind = KIND[name]
    if kind is SHORT:
        return _short(str(value))
    return struct.pack(">B" if kind is OCTET else ">Q", int(value))
