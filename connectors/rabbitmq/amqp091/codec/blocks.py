"""Property blocks of AMQP 0-9-1: which properties one holds, and where these and its headers lie. No I/O.

Two octets of flags name the properties that follow, in this order (AMQP 0-9-1 section 4.2.6 and the
class `basic`).
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from dlq.connectors.rabbitmq.amqp091.codec.fields import CACHED_BYTES, DEPTH, READERS, SIZES, ends_at
from dlq.core.layouts import Layouts

SHORT, _HEADERS, OCTET, TIME = "short string", "table", "octet", "timestamp"
_LAYOUT = (
    (1 << 15, "content_type", SHORT),
    (1 << 14, "content_encoding", SHORT),
    (1 << 13, "headers", _HEADERS),
    (1 << 12, "delivery_mode", OCTET),
    (1 << 11, "priority", OCTET),
    (1 << 10, "correlation_id", SHORT),
    (1 << 9, "reply_to", SHORT),
    (1 << 8, "expiration", SHORT),
    (1 << 7, "message_id", SHORT),
    (1 << 6, "timestamp", TIME),
    (1 << 5, "type", SHORT),
    (1 << 4, "user_id", SHORT),
    (1 << 3, "app_id", SHORT),
    (1 << 2, "cluster_id", SHORT),
)
BIT = {name: bit for bit, name, _ in _LAYOUT}
KIND = {name: kind for _, name, kind in _LAYOUT}
MOST_NAMES = 100
"""What follows from the names of a table with no more of them is remembered."""
_STRING, _TABLE = ord("S"), ord("F")
_NESTED = b"FA"
_FIXED = [SIZES.get(kind) for kind in range(256)]
_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from


@lru_cache(maxsize=512)
def layout(flags: int) -> tuple[tuple[str, str], ...]:
    """Return (name, kind) of the properties that the flags name, in order; raises ValueError for others."""
    if flags & 3:
        raise ValueError(f"property flags {flags:#06x} name properties that AMQP 0-9-1 does not have")
    return tuple((name, kind) for bit, name, kind in _LAYOUT if flags & bit)


def parts(block: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of each property; raises ValueError, IndexError or struct.error."""
    at = 2
    for name, kind in layout(_u16(block)[0]):
        start = at
        at += SPANS[kind](block, at)
        yield name, start, at
    ends_at(at, len(block))


SPANS: Mapping[str, Callable[[bytes, int], int]] = {
    SHORT: lambda block, at: 1 + block[at],
    _HEADERS: lambda block, at: 4 + int(_u32(block, at)[0]),
    OCTET: lambda _block, _at: 1,
    TIME: lambda _block, _at: 8,
}
"""Kind -> octets of the property that begins there."""


class Shape(NamedTuple):
    """Of one block, or many; all of it can be read."""

    flags: int
    bounds: tuple[int, ...]
    """Where the first property begins, and where each ends."""
    names: tuple[str, ...]
    """Those of the headers, as they are shown."""
    ends: tuple[int, ...]
    """Where the first header begins, and where each ends."""
    nested: tuple[int, ...]
    """Which of all values may be damaged inside."""


_layouts: Layouts[Shape] = Layouts()
_Walked = tuple[list[bytes], list[int], list[int]]
"""The headers' names, `Shape.ends`, and which headers may be damaged inside."""
_NO_HEADERS: _Walked = [], [2], []


@lru_cache(maxsize=2)
def shape_of(block: bytes) -> Shape:
    """Return its shape; the same block comes again and again. Raises ValueError where it cannot be read."""
    try:
        found = _layouts.find(block)
        if found is None:
            return _read_shape(block)
        shape, values = found
        if not all(_is_one_field(values[place]) for place in shape.nested):
            return _read_shape(block)
        for place in shape.nested:
            _check(values[place])
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    return shape


def _read_shape(block: bytes) -> Shape:
    flags, at = _u16(block)[0], 2
    bounds, found = [at], _NO_HEADERS
    nested: tuple[int, ...] = ()
    for name, kind in layout(flags):
        at += 1 + block[at] if kind is SHORT else SPANS[kind](block, at)
        if name == "headers":
            found = _walk(block, bounds[-1] + 4, at)
            nested = tuple([len(bounds) - 1 + place for place in found[2]])
        bounds.append(at)
    ends_at(at, len(block))
    names, ends, _ = found
    texts = (_known_texts if len(names) <= MOST_NAMES else _texts)(tuple(names))
    shape = Shape(flags, tuple(bounds), texts, tuple(ends), nested)
    if len(names) <= MOST_NAMES:
        _layouts.note(block, shape, _spans)
    return shape


def _walk(block: bytes, at: int, end: int) -> _Walked:
    names: list[bytes] = []
    ends, nested = [at], []
    while at < end:
        start, place = at + 1, at + 1 + block[at]
        kind = block[place]
        if kind == _STRING:
            at = place + 5 + _u32(block, place + 1)[0]
        elif (size := _FIXED[kind]) is not None:
            at = place + 1 + size
        else:
            at = place + 5 + _u32(block, place + 1)[0]
            _check(block[place:at])
            nested.append(len(names))
        names.append(block[start:place])
        ends.append(at)
    ends_at(at, end)
    return names, ends, nested


def _spans(block: bytes, shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield where the values of properties and headers lie, of those that may be damaged inside the type,
    too."""
    for (name, kind), (at, end) in zip(layout(shape.flags), pairwise(shape.bounds), strict=True):
        if name != "headers":
            yield at + (kind is SHORT), end
            continue
        for start, stop in pairwise(shape.ends):
            place = start + 1 + block[start]
            is_checked = block[place] != _STRING and _FIXED[block[place]] is None
            yield place + (0 if is_checked else 5 if block[place] == _STRING else 1), stop


def _is_one_field(value: bytes) -> bool:
    """Return whether what lies where another block has a field with its size is such a field, not several."""
    is_sized = value[0] != _STRING and _FIXED[value[0]] is None
    return is_sized and len(value) == 5 + _u32(value, 1)[0]


def _check(field: bytes) -> None:
    """Raise where reading it raises."""
    (_known_field if len(field) <= CACHED_BYTES else _check_field)(field)


def _check_field(field: bytes) -> None:
    _check_fields(field, 0, len(field), False, 0)


def _check_fields(data: bytes, at: int, end: int, is_table: bool, depth: int) -> None:
    """Walk through the values, which most letters have of their own, and makes none."""
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


def _texts(names: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(name.decode("utf-8", "backslashreplace") for name in names)


_known_texts = lru_cache(maxsize=256)(_texts)
