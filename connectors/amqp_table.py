"""The AMQP 0-9-1 content header's property block: bytes in, values out, and the way back. No I/O.

A block is the content header frame's payload from byte 12: two octets of property flags, then the
properties that the flags name (AMQP 0-9-1 section 4.2.6; the field types are those of RabbitMQ's
errata, read in `amqp_fields`). The block stays the truth; what `decode` shows is for eyes and rules:
strings as they are, numbers, tables and arrays as JSON. A death history is read by `amqp_deaths`.
"""

import json
import struct
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.amqp_edit import edit
from dlq.connectors.amqp_fields import CACHED_BYTES, READERS, ends_at
from dlq.connectors.amqp_layout import BIT, OCTET, SHORT, TIME, layout

DELIVERY_HEADERS = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers that a quorum queue makes anew at each delivery; no part of the message."""

_STRING = ord("S")
_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
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
    for name, kind in layout(_u16(block)[0]):
        if kind is SHORT:
            start = at + 1
            at = start + block[at]
            properties[name] = block[start:at].decode("utf-8", "backslashreplace")
        elif kind is OCTET:
            properties[name] = str(block[at])
            at += 1
        elif kind is TIME:
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
    if not flags & BIT["headers"]:
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
