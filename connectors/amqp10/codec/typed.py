"""Values of AMQP 1.0 from JSON, in the types that they had before. No I/O.

As of AMQP 0-9-1 (`rabbitmq.amqp.typed`) an edit says everything: null is null, an object a map, a list a
list, and a value keeps the type that the header had. What cannot be said in it is refused with a ValueError,
never sent as something else.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from dlq.connectors import edited
from dlq.connectors.amqp10.codec.values import (
    NOTHING,
    NULL,
    Value,
    as_text,
    binary,
    boolean,
    long,
    mapping,
    sequence_of_all,
    string,
    symbol,
    to_json,
)
from dlq.core.runtime import bounded_json

_INTEGERS: Mapping[str, tuple[int, str]] = {
    "ubyte": (0x50, "B"), "byte": (0x51, "b"), "ushort": (0x60, "H"), "short": (0x61, "h"),
    "uint": (0x70, "I"), "int": (0x71, "i"), "ulong": (0x80, "Q"), "long": (0x81, "q"),
}  # fmt: skip
"""Type -> its widest constructor, and its form."""
_REALS: Mapping[str, tuple[int, str]] = {"float": (0x72, "f"), "double": (0x82, "d")}
_DECIMALS = {"decimal32": (0x74, 4), "decimal64": (0x84, 8), "decimal128": (0x94, 16)}


def encode_value(value: Any, like: Value = NOTHING) -> bytes:
    """Return a value as it is encoded; `like` is the one that it replaces. Raises ValueError."""
    bounded_json.check_depth(value)
    if value is None:
        return NULL
    if like.kind in ("list", "map"):
        return _encode_nested(value, like)
    if like.kind in ("array", "described", "opaque"):
        raise ValueError(f"a value of the type {like.kind} cannot be edited")
    return SCALARS.get(like.kind, _by_its_own_type)(value, like)


def _by_its_own_type(value: Any, _like: Value = NOTHING) -> bytes:
    if isinstance(value, bool):
        return boolean(value)
    if isinstance(value, int):
        return long(value)
    if isinstance(value, float):
        return b"\x82" + struct.pack(">d", value)
    if isinstance(value, dict | list):
        return _encode_nested(value, Value("map" if isinstance(value, dict) else "list", []))
    return string(value)


def _integer(value: Any, like: Value) -> bytes:
    code, form = _INTEGERS[like.kind]
    return bytes([code]) + edited.pack(form, edited.read_number(value, int))


def _real(value: Any, like: Value) -> bytes:
    code, form = _REALS[like.kind]
    return bytes([code]) + edited.pack(form, edited.read_number(value, float))


def _decimal(value: Any, like: Value) -> bytes:
    code, size = _DECIMALS[like.kind]
    try:
        octets = bytes.fromhex(str(value).removeprefix("0x"))
    except ValueError as error:
        raise edited.wrong(value, f"a {like.kind}, shown as its octets,") from error
    if len(octets) != size:
        raise edited.wrong(value, f"a {like.kind} of {size} octets")
    return bytes([code]) + octets


def _truth(value: Any, _like: Value) -> bytes:
    return boolean(edited.read_truth(value))


def _time(value: Any, _like: Value) -> bytes:
    return b"\x83" + edited.pack("q", edited.read_moment(value, 1000))


def _uuid(value: Any, _like: Value) -> bytes:
    try:
        return b"\x98" + UUID(str(value)).bytes
    except ValueError as error:
        raise edited.wrong(value, "a uuid") from error


def _char(value: Any, _like: Value) -> bytes:
    if not isinstance(value, str) or len(value) != 1:
        raise edited.wrong(value, "one character")
    return b"\x73" + struct.pack(">I", ord(value))


def _binary(value: Any, _like: Value) -> bytes:
    edited.refuse_shown_bytes(value)
    return binary(value.encode()) if isinstance(value, str) else _by_its_own_type(value)


def _text(make: Callable[[str], bytes]) -> Callable[[Any, Value], bytes]:
    return lambda value, _like: make(value) if isinstance(value, str) else _by_its_own_type(value)


SCALARS: Mapping[str, Callable[[Any, Value], bytes]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_REALS, _real),
    **dict.fromkeys(_DECIMALS, _decimal),
    "boolean": _truth,
    "timestamp": _time,
    "uuid": _uuid,
    "char": _char,
    "binary": _binary,
    "string": _text(string),
    "symbol": _text(symbol),
}


def _encode_nested(value: Any, like: Value) -> bytes:
    if like.kind == "map":
        return _map(edited.read_nested(value, dict, "a map"), like)
    return _list(edited.read_nested(value, list, "a list"), like)


def _list(value: list[Any], like: Value) -> bytes:
    before = [*like.value, *[NOTHING] * (len(value) - len(like.value))]
    return sequence_of_all([encode_value(one, before[n]) for n, one in enumerate(value)])


def _map(value: Mapping[str, Any], like: Value) -> bytes:
    before = {as_text(key, True): (key, one) for key, one in like.value}
    pairs = []
    for name, one in value.items():
        key, was = before.get(name, (Value("string", name), NOTHING))
        pairs.append(encode_value(to_json(key, True), key) + encode_value(one, was))
    return mapping(pairs)
