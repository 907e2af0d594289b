"""How an AMQP 0-9-1 property block is laid out: where its properties and headers lie. No I/O.

Blocks of letters of one kind are mostly laid out alike to the last length: then what stands between their
values is compared at once, and only what is nested is walked through.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from dlq.connectors.rabbitmq.amqp091.codec.fields import CACHED_BYTES, DEPTH, READERS, SIZES, ends_at
from dlq.connectors.rabbitmq.amqp091.codec.layout import SHORT, SPANS, layout

MOST_NAMES = 100
"""What follows from the names of a table with no more of them is remembered."""
_MOST_SHAPES = 256
_STRING, _TABLE = ord("S"), ord("F")
_NESTED = b"FA"
_FIXED = [SIZES.get(kind) for kind in range(256)]
_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from


class Shape(NamedTuple):
    """Of one block, or many; all of it can be read."""

    flags: int
    bounds: tuple[int, ...]
    """Where the first property begins, and where each ends."""
    names: tuple[str, ...]
    """Those of the headers, as they are shown."""
    ends: tuple[int, ...]
    """Where the first header begins, and where each ends."""


class _Known(NamedTuple):
    """A shape, and how another block of it is told."""

    shape: Shape
    between: Callable[[bytes], tuple[bytes, ...]]
    """What stands between the values of a block of this length."""
    told: tuple[bytes, ...]
    nested: Sequence[slice]
    """Values that may be damaged inside."""


_seen: dict[int, Shape] = {}
"""Length -> the shape of the last block that was so long, and had not a known one."""
_known: dict[int, _Known] = {}
"""The same of shapes that were seen twice: what has a length of its own is not worth it."""


@lru_cache(maxsize=2)
def shape_of(block: bytes) -> Shape:
    """The same block is asked about again and again. Raises ValueError where it cannot be read."""
    known = _known.get(len(block))
    try:
        if known is None or known.between(block) != known.told:
            return _walked(block)
        for place in known.nested:
            _check(block[place])
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error
    return known.shape


def _walked(block: bytes) -> Shape:
    flags, at = _u16(block)[0], 2
    bounds, names, ends = [at], list[bytes](), [at]
    for name, kind in layout(flags):
        at += 1 + block[at] if kind is SHORT else SPANS[kind](block, at)
        if name == "headers":
            names, ends = _walk(block, bounds[-1] + 4, at)
        bounds.append(at)
    ends_at(at, len(block))
    texts = (_known_texts if len(names) <= MOST_NAMES else _texts)(tuple(names))
    shape = Shape(flags, tuple(bounds), texts, tuple(ends))
    if len(names) <= MOST_NAMES:
        _remember(block, shape)
    return shape


def _walk(block: bytes, at: int, end: int) -> tuple[list[bytes], list[int]]:
    """Return the headers' names, and `Shape.ends`."""
    names, ends = [], [at]
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
        names.append(block[start:place])
        ends.append(at)
    ends_at(at, end)
    return names, ends


def _remember(block: bytes, shape: Shape) -> None:
    size = len(block)
    for kept in (_seen, _known):
        if len(kept) >= _MOST_SHAPES:
            kept.clear()
    if _seen.get(size) == shape:
        values, nested = _values(block, shape)
        form, at = "", 0
        for start, end in sorted(values):
            form, at = f"{form}{start - at}s{end - start}x", end
        between = struct.Struct(f"{form}{size - at}s").unpack
        _known[size] = _Known(shape, between, between(block), nested)
    _seen[size] = shape


def _values(block: bytes, shape: Shape) -> tuple[list[tuple[int, int]], list[slice]]:
    """Return where the values of properties and headers lie, and those of the headers that are nested."""
    bounds = zip(layout(shape.flags), pairwise(shape.bounds), strict=True)
    values = [(at + (kind is SHORT), end) for (name, kind), (at, end) in bounds if name != "headers"]
    nested: list[slice] = []
    for at, end in pairwise(shape.ends):
        place = at + 1 + block[at]
        values.append((place + (5 if _FIXED[block[place]] is None else 1), end))
        nested += [slice(place, end)] * (block[place] in _NESTED)
    return values, nested


def _check(field: bytes) -> None:
    """Raise where reading it raises."""
    (_known_field if len(field) <= CACHED_BYTES else _check_field)(field)


def _check_field(field: bytes) -> None:
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


def _texts(names: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(name.decode("utf-8", "backslashreplace") for name in names)


_known_texts = lru_cache(maxsize=256)(_texts)
