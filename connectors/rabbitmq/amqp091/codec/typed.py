"""Header values of AMQP 0-9-1 from JSON, in the types that they had before. No I/O.

An edit says everything: null is void, an object a table, a list an array, and a value keeps the type that the
header had. What cannot be said in it is refused with a ValueError, never sent as something else.
"""

import struct
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from dlq.connectors import edited
from dlq.connectors.rabbitmq.amqp091.codec.fields import SIZES
from dlq.core.runtime import bounded_json

_INTEGERS = {"b": "b", "B": "B", "s": "h", "U": "h", "u": "H", "I": "i", "i": "I", "l": "q", "L": "q"}
_REALS = {"f": "f", "d": "d"}
_u32 = struct.Struct(">I")


def encode_field(value: Any, like: bytes | None = None) -> bytes:
    """Return a value behind the octet of its type; `like` is the field it replaces. Raises ValueError."""
    bounded_json.check_depth(value)
    return _encode(value, like)


def _encode(value: Any, like: bytes | None) -> bytes:
    kind = chr(like[0]) if like else ""
    if value is None:
        return b"V"
    if kind in _INTEGERS:
        return kind.encode() + edited.pack(_INTEGERS[kind], edited.read_number(value, int))
    if kind in _REALS:
        return kind.encode() + edited.pack(_REALS[kind], edited.read_number(value, float))
    if kind in ("F", "A"):
        return _encode_nested(kind, value, like or b"")
    if kind in _OTHERS:
        return _OTHERS[kind](value, like)
    return _by_its_own_type(value)


def _by_its_own_type(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"t\1" if value else b"t\0"
    if isinstance(value, int):
        return b"l" + edited.pack("q", value)
    if isinstance(value, float):
        return b"d" + edited.pack("d", value)
    if isinstance(value, dict | list):
        return _encode_nested("F" if isinstance(value, dict) else "A", value, b"")
    return _text(value, b"S")


def _text(value: Any, like: bytes | None) -> bytes:
    if not isinstance(value, str):
        return _by_its_own_type(value)
    content = value.encode("utf-8", "surrogatepass")
    return (like or b"S")[:1] + _u32.pack(len(content)) + content


def _binary(value: Any, like: bytes | None) -> bytes:
    edited.refuse_shown_bytes(value)
    return _text(value, like)


def _truth(value: Any, _like: bytes | None) -> bytes:
    return b"t\1" if edited.read_truth(value) else b"t\0"


def _time(value: Any, like: bytes | None) -> bytes:
    """Encode a time in the unit that it had: seconds, or milli- or microseconds where the size says so."""
    before = int.from_bytes((like or b"")[1:9])
    unit = 1_000_000 if before < 10**11 else 1000 if before < 10**14 else 1
    return b"T" + edited.pack("Q", edited.read_moment(value, unit))


def _decimal(value: Any, like: bytes | None) -> bytes:
    scale = (like or b"D\0")[1]
    try:
        unscaled = Decimal(str(value)).scaleb(scale)
        whole = int(unscaled)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise edited.wrong(value, "a decimal number") from error
    if unscaled != whole:
        raise edited.wrong(value, f"a number of {scale} decimal places")
    return b"D" + bytes([scale]) + edited.pack("i", whole)


_OTHERS = {"S": _text, "x": _binary, "t": _truth, "T": _time, "D": _decimal}


def _encode_nested(kind: str, value: Any, like: bytes) -> bytes:
    if kind == "F":
        content = b"".join(_table(edited.read_nested(value, dict, "a table"), like))
    else:
        content = b"".join(_array(edited.read_nested(value, list, "an array"), like))
    return kind.encode() + _u32.pack(len(content)) + content


def _table(value: Mapping[str, Any], like: bytes) -> Iterator[bytes]:
    before = dict(named_fields(like[5:])) if like else {}
    for name, one in value.items():
        yield _short_name(name) + _encode(one, before.get(name))


def _array(value: list[Any], like: bytes) -> Iterator[bytes]:
    before = list(_items(like[5:])) if like else []
    for number, one in enumerate(value):
        yield _encode(one, before[number] if number < len(before) else None)


def _short_name(name: str) -> bytes:
    """Return a field's name as it is encoded. Raises ValueError."""
    content = name.encode("utf-8", "surrogatepass")
    if len(content) > 255:
        raise ValueError(f"the name {name[:40]!r}... is longer than 255 bytes")
    return bytes([len(content)]) + content


def named_fields(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a table: name, and value with the octet of its type."""
    at = 0
    while at < len(content):
        kind = at + 1 + content[at]
        end = _end(content, kind)
        yield content[at + 1 : kind].decode("utf-8", "backslashreplace"), content[kind:end]
        at = end


def _items(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        end = _end(content, at)
        yield content[at:end]
        at = end


def _end(content: bytes, kind: int) -> int:
    size = SIZES.get(content[kind])
    return kind + 5 + _u32.unpack_from(content, kind + 1)[0] if size is None else kind + 1 + size
