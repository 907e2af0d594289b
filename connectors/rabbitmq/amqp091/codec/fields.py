"""The field values of AMQP 0-9-1 tables, with RabbitMQ's types: bytes in, values that JSON knows out.

Nothing that a queue can hold makes a reader guess or fail; what has no JSON value is shown like this:

    bytes that are not UTF-8 escaped: b"\\xff" is shown as the four characters \\xff
    timestamps (T)            ISO 8601; seconds, or milli- or microseconds where the size says so
    decimals (D)              their digits with the scale kept: 1.50
    NaN, infinity             the words nan, inf
    nesting deeper than 32    the words "(nested too deeply to be shown)"

Types and sizes: AMQP 0-9-1 section 4.2.5 and https://www.rabbitmq.com/amqp-0-9-1-errata#section_3
"""

import struct
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from math import isfinite

from dlq.core.clock import iso

DEPTH = 32
_TOO_DEEP = "(nested too deeply to be shown)"
CACHED_BYTES = 4096
"""Nested values up to this size are remembered by their bytes."""

_u32 = struct.Struct(">I").unpack_from
_u64 = struct.Struct(">Q").unpack_from


def instant(number: int) -> int | None:
    """Return microseconds since the epoch of a timestamp field; None where no unit gives a sane date.

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


def _nested_reader(build: Callable[[bytes, int], object]) -> _Read:
    remembered = lru_cache(maxsize=512)(build)

    def read(data: bytes, at: int, depth: int) -> tuple[object, int]:
        stop = at + 4 + _u32(data, at)[0]
        if depth >= DEPTH:
            return _TOO_DEEP, stop
        content = data[at + 4 : stop]
        # The x-death of thousands of letters is the same within a second.
        return (remembered if len(content) <= CACHED_BYTES else build)(content, depth + 1), stop

    return read


def _array(content: bytes, depth: int) -> list[object]:
    items, at, end = [], 0, len(content)
    while at < end:
        value, at = READERS[content[at]](content, at + 1, depth)
        items.append(value)
    ends_at(at, end)
    return items


def _table(content: bytes, depth: int) -> dict[str, object]:
    table: dict[str, object] = {}
    at, end = 0, len(content)
    while at < end:
        kind = at + 1 + content[at]
        name = content[at + 1 : kind].decode("utf-8", "backslashreplace")
        value, at = READERS[content[kind]](content, kind + 1, depth)
        table.setdefault(name, value)
    ends_at(at, end)
    return table


def ends_at(at: int, end: int) -> None:
    """Check where a value ends. Raises ValueError where what was read to `at` should have ended at `end`."""
    if at != end:
        raise ValueError(f"a field ends {at - end} bytes beyond its table")


READERS: dict[int, _Read] = {
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
    ord("F"): _nested_reader(_table),
    ord("A"): _nested_reader(_array),
}
SIZES = {
    ord(kind): size
    for kind, size in zip("tbBsUuIilLfdDVT", (1, 1, 1, 2, 2, 2, 4, 4, 8, 8, 4, 8, 5, 0, 8), strict=True)
}
"""Octets of a value by its type; those not named here carry their size in four octets."""
