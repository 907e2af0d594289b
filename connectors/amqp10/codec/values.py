"""The values of AMQP 1.0, with their types: bytes in, values out, and the few that we write. No I/O.

A value begins with a constructor, whose first half says how wide it is: nothing, 1, 2, 4, 8 or 16 octets, or
a size of one octet or of four (OASIS AMQP 1.0, part 1). A value keeps the name of its type, because some
types (uuid, char, ...) are such as AMQP 0-9-1 lacks.
"""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

from dlq.core.clock import datable, iso

_DEPTH = 32
_FREE = 1024
"""Elements without octets that any letter may have."""
_OPAQUE = "opaque"
"""The kind of a value that is kept as its octets."""
_COMPOUNDS = ("list", "array", "map", "described", _OPAQUE)
_NOT_SHOWN = "(nested too deeply, or too much, to be shown)"


class Value(NamedTuple):
    """One value. `value` is a Python value; of a list or array a list of values, of a map a list of pairs, of
    a described value its descriptor and itself."""

    kind: str
    value: Any


NOTHING = Value("null", None)
_Read = Callable[[bytes], Any]


def _number(form: str) -> _Read:
    unpack = struct.Struct(f">{form}").unpack

    def read(data: bytes) -> Any:
        return unpack(data)[0]

    return read


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _always(value: object) -> _Read:
    return lambda _data: value


_PLAIN: Mapping[int, tuple[str, _Read]] = {
    0x40: ("null", _always(None)),
    0x41: ("boolean", _always(True)),
    0x42: ("boolean", _always(False)),
    0x43: ("uint", _always(0)),
    0x44: ("ulong", _always(0)),
    0x50: ("ubyte", _number("B")),
    0x51: ("byte", _number("b")),
    0x52: ("uint", _number("B")),
    0x53: ("ulong", _number("B")),
    0x54: ("int", _number("b")),
    0x55: ("long", _number("b")),
    0x56: ("boolean", _number("?")),
    0x60: ("ushort", _number("H")),
    0x61: ("short", _number("h")),
    0x70: ("uint", _number("I")),
    0x71: ("int", _number("i")),
    0x72: ("float", _number("f")),
    0x73: ("char", _number("I")),
    0x74: ("decimal32", bytes),
    0x80: ("ulong", _number("Q")),
    0x81: ("long", _number("q")),
    0x82: ("double", _number("d")),
    0x83: ("timestamp", _number("q")),
    0x84: ("decimal64", bytes),
    0x94: ("decimal128", bytes),
    0x98: ("uuid", bytes),
    0xA0: ("binary", bytes),
    0xA1: ("string", _text),
    0xA3: ("symbol", _text),
    0xB0: ("binary", bytes),
    0xB1: ("string", _text),
    0xB3: ("symbol", _text),
}
_COMPOUND = {0x45: "list", 0xC0: "list", 0xD0: "list", 0xC1: "map", 0xD1: "map", 0xE0: "array", 0xF0: "array"}
_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""First half of a constructor -> octets of the value, for those of a fixed width."""
_UNREADABLE = (IndexError, KeyError, ValueError, struct.error)


class Budget:
    """How many elements the values of one letter, or frame, may still have that take no octets. Nothing else
    bounds those of an array: it says how many it has, and each has the array's descriptor."""

    def __init__(self, size: int) -> None:
        """`size`: octets of the letter."""
        self._left = _FREE + size

    def take(self, elements: int) -> None:
        """Take so many elements. Raises ValueError where they are too many."""
        self._left -= elements
        if self._left < 0:
            raise ValueError("it has more elements than its octets can hold")


def read(data: bytes, at: int = 0, budget: Budget | None = None) -> tuple[Value, int]:
    """Return the value that begins at `at`, and where it ends. Raises ValueError."""
    try:
        return _read(data, at, len(data), 0, budget or Budget(len(data)))
    except _UNREADABLE as error:
        raise ValueError(f"a value of AMQP 1.0 that cannot be read: {error!r}") from error


def read_if_possible(data: bytes, at: int, budget: Budget) -> tuple[Value, int]:
    """Return the same; a value that is whole, and nests too deep, says too much or holds nonsense, is opaque.
    Raises ValueError where it does not end."""
    end = span(data, at)
    try:
        return read(data[at:end], 0, budget)[0], end
    except ValueError:
        return Value(_OPAQUE, data[at:end]), end


def span(data: bytes, at: int) -> int:
    """Return where the value that begins at `at` ends; it is not read. Raises ValueError."""
    try:
        while data[at] == 0:
            at = _body(data, at + 1, len(data), data[at + 1])[1]
        return _body(data, at, len(data), data[at])[1]
    except IndexError as error:
        raise ValueError("a value of AMQP 1.0 is cut off") from error


def _read(data: bytes, at: int, limit: int, depth: int, budget: Budget) -> tuple[Value, int]:
    if data[at] == 0:
        descriptor, at = _read(data, at + 1, limit, _deeper(depth), budget)
        described, at = _read(data, at, limit, _deeper(depth), budget)
        return Value("described", (descriptor, described)), at
    return _value(data, at, limit, data[at], depth, budget)


def _deeper(depth: int) -> int:
    if depth >= _DEPTH:
        raise ValueError(f"it is nested deeper than {_DEPTH} levels")
    return depth + 1


def _value(data: bytes, at: int, limit: int, code: int, depth: int, budget: Budget) -> tuple[Value, int]:
    """Return the value of a known constructor, which stands in the octet before its body."""
    begin, end = _body(data, at, limit, code)
    if code in _PLAIN:
        kind, convert = _PLAIN[code]
        return Value(kind, convert(data[begin:end])), end
    kind = _COMPOUND[code]
    if code == 0x45:
        return Value(kind, []), end
    size = 4 if code & 0x10 else 1
    count = int.from_bytes(data[begin : begin + size], "big")
    read_items = _array if kind == "array" else _items
    items = read_items(data, begin + size, end, count, _deeper(depth), budget)
    if kind != "map":
        return Value(kind, items), end
    if count % 2:
        raise ValueError("a map with a key that has no value")
    return Value(kind, list(zip(items[::2], items[1::2], strict=True))), end


def _body(data: bytes, at: int, limit: int, code: int) -> tuple[int, int]:
    """Return where the body of the value begins and ends; `at` is where its constructor stands."""
    width = _WIDTHS.get(code >> 4)
    if width is not None:
        begin, end = at + 1, at + 1 + width
    elif code >> 4 >= 0xA:
        size = 4 if code & 0x10 else 1
        begin = at + 1 + size
        end = begin + int.from_bytes(data[at + 1 : begin], "big")
    else:
        raise ValueError(f"a constructor {code:#04x}, which AMQP 1.0 has not")
    if end > limit:
        raise ValueError("it is cut off")
    return begin, end


def _items(data: bytes, at: int, end: int, count: int, depth: int, budget: Budget) -> list[Value]:
    items = []
    for _ in range(count):
        item, at = _read(data, at, end, depth, budget)
        items.append(item)
    _ends(at, end)
    return items


def _array(data: bytes, at: int, end: int, count: int, depth: int, budget: Budget) -> list[Value]:
    """Read an array, whose elements have one constructor, which stands before the first."""
    begin = at
    descriptor, at = (None, at) if data[at] else _read(data, at + 1, end, depth, budget)
    code, items = data[at], []
    budget.take(count * (at - begin + (_WIDTHS.get(code >> 4) == 0)))
    for _ in range(count):
        item, behind = _value(data, at, end, code, depth, budget)
        at = behind - 1
        items.append(item if descriptor is None else Value("described", (descriptor, item)))
    _ends(at + 1, end)
    return items


def _ends(at: int, end: int) -> None:
    if at != end:
        raise ValueError("a value that does not end where it says")


def plain(value: Value) -> Any:
    """Return the value as Python has it, without types; of a described one (code, value). What has a key that
    is no scalar is left out of a map."""
    kind, inner = value
    if kind in ("list", "array"):
        return [plain(item) for item in inner]
    if kind == "map":
        return {str(key.value): plain(item) for key, item in inner if key.kind not in _COMPOUNDS}
    if kind == "described":
        return (plain(inner[0]), plain(inner[1]))
    return inner


def to_json(value: Value, in_key: bool = False) -> Any:
    """Return the value as JSON has it: bytes that are no UTF-8 as escapes, times in ISO 8601, decimals in
    hex. `in_key`: as a part of a key, in which no other key is nested: each would double its escapes."""
    kind, inner = value
    if kind in ("list", "array"):
        return [to_json(item, in_key) for item in inner]
    if kind == "map":
        return {_key(key, in_key): to_json(item, in_key) for key, item in inner}
    if kind == "described":
        return {_key(inner[0], in_key): to_json(inner[1], in_key)}
    return _SHOWN[kind](inner) if kind in _SHOWN else inner


def _key(value: Value, in_key: bool) -> str:
    return _NOT_SHOWN if in_key and value.kind in _COMPOUNDS else as_text(value, True)


def as_text(value: Value, in_key: bool = False) -> str:
    """Return the value as text: strings as they are, all else as JSON."""
    found = to_json(value, in_key)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _shown_char(code: int) -> str:
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else f"\\U{code:08x}"


def _shown_time(milliseconds: int) -> str | int:
    return milliseconds if datable(milliseconds * 1000) is None else iso(milliseconds * 1000)


def shown_real(number: float) -> float | str:
    """Return a number as JSON has it, which knows neither NaN nor infinity: these are texts."""
    return number if isfinite(number) else str(number)


_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    _OPAQUE: _always(_NOT_SHOWN),
    "binary": _text,
    "char": _shown_char,
    "uuid": lambda octets: str(UUID(bytes=octets)),
    "timestamp": _shown_time,
    "float": shown_real,
    "double": shown_real,
    "decimal32": lambda octets: f"0x{octets.hex()}",
    "decimal64": lambda octets: f"0x{octets.hex()}",
    "decimal128": lambda octets: f"0x{octets.hex()}",
}

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def uint(number: int) -> bytes:
    """Return an unsigned integer of 32 bits."""
    return b"\x52" + bytes((number,)) if number < 256 else b"\x70" + number.to_bytes(4, "big")


def ubyte(number: int) -> bytes:
    """Return one of 8 bits."""
    return b"\x50" + bytes((number,))


def ushort(number: int) -> bytes:
    """Return one of 16 bits."""
    return b"\x60" + number.to_bytes(2, "big")


def _with_size(small: int, content: bytes) -> bytes:
    """Encode content after a constructor with a size of one octet, or the one 16 above it, with four."""
    size = len(content)
    return bytes((small, size)) + content if size < 256 else sized_32(small + 0x10, size) + content


def sized_32(code: int, size: int) -> bytes:
    """Return a constructor with a size of four octets, and the size."""
    return bytes((code,)) + size.to_bytes(4, "big")


def long(number: int) -> bytes:
    """Return a signed integer of 64 bits. Raises ValueError."""
    try:
        return b"\x81" + number.to_bytes(8, "big", signed=True)
    except OverflowError as error:
        raise ValueError(f"{number} is too large for a number of AMQP") from error


def binary(content: bytes) -> bytes:
    """Return bytes."""
    return _with_size(0xA0, content)


def string(text: str) -> bytes:
    """Return text."""
    return _with_size(0xA1, text.encode())


def symbol(text: str) -> bytes:
    """Return a name."""
    return _with_size(0xA3, text.encode())


def boolean(value: bool) -> bytes:
    """Return true or false."""
    return TRUE if value else FALSE


def sequence(items: Iterable[bytes]) -> bytes:
    """Return a list of encoded values; null at its end means the same as nothing."""
    kept = list(items)
    while kept and kept[-1] == NULL:
        kept.pop()
    return _with_count(0xC0, len(kept), b"".join(kept)) if kept else b"\x45"


def sequence_of_all(items: Sequence[bytes]) -> bytes:
    """Return a list of encoded values, each of which counts."""
    return _with_count(0xC0, len(items), b"".join(items)) if items else b"\x45"


def mapping(pairs: Sequence[bytes]) -> bytes:
    """Return a map of pairs, each an encoded key and its encoded value."""
    return _with_count(0xC1, 2 * len(pairs), b"".join(pairs))


def _with_count(small: int, count: int, content: bytes) -> bytes:
    if len(content) < 255 and count < 256:
        return bytes((small, len(content) + 1, count)) + content
    return sized_32(small + 0x10, len(content) + 4) + count.to_bytes(4, "big") + content


def described_value(code: int, value: bytes) -> bytes:
    """Return a value with a code of AMQP's own as its descriptor."""
    return bytes((0, 0x53, code)) + value
