"""The AMQP 0-9-1 content header's property block: bytes in, values out, and the way back. No I/O.

A block is the content header frame's payload from byte 12: two octets of property flags, then the
properties that the flags name (AMQP 0-9-1 section 4.2.6; the field types are those of RabbitMQ's
errata, read in `fields`). The block stays the truth; what `decode` shows is for people and rules:
strings as they are, numbers, tables and arrays as JSON. A death history is read by `x_death`.
"""

import json
import struct
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.jsonl.values import count_of
from dlq.connectors.rabbitmq.amqp091.codec.blocks import OCTET, SHORT, TIME, layout
from dlq.connectors.rabbitmq.amqp091.codec.edits import edit
from dlq.connectors.rabbitmq.amqp091.codec.fields import CACHED_BYTES, READERS, ends_at

DELIVERY_HEADERS = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers that a quorum queue makes anew at each delivery; no part of the message."""

_STRING = ord("S")
_NESTED = frozenset(b"AF")
_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_u64 = struct.Struct(">Q").unpack_from


class Properties(NamedTuple):
    """A decoded block.

    `properties` are the basic properties by their AMQP names, numbers as digits (`timestamp` as it
    is on the wire); `headers` the header table as text, of duplicate names the first.
    """

    properties: dict[str, str]
    headers: dict[str, str]


def decode(block: bytes) -> Properties:
    """Return the values of a block; raises ValueError where it is cut short or of an unknown type."""
    try:
        return _decode(block)
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged property block: {error!r}") from error


def _decode(block: bytes) -> Properties:
    properties: dict[str, str] = {}
    headers: dict[str, str] = {}
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
            headers = _headers(block, start, at)
    ends_at(at, len(block))
    return Properties(properties, headers)


def _headers(block: bytes, at: int, end: int) -> dict[str, str]:
    """Return the header table in block[at:end]. Runs for every letter, so strings are read in place."""
    headers: dict[str, str] = {}
    while at < end:
        kind = at + 1 + block[at]
        name = _name(block[at + 1 : kind])
        code = block[kind]
        if code == _STRING:
            start = kind + 5
            at = start + _u32(block, kind + 1)[0]
            text = block[start:at].decode("utf-8", "backslashreplace")
        elif code in _NESTED:
            at = kind + 5 + _u32(block, kind + 1)[0]
            field = block[kind:at]
            text = (_known_text if len(field) <= CACHED_BYTES else _nested_text)(field)
        else:
            value, at = READERS[code](block, kind + 1, 0)
            text = as_text(value)
        if name not in headers:
            headers[name] = text
    ends_at(at, end)
    return headers


@lru_cache(maxsize=4096)
def _name(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def as_text(value: object) -> str:
    """Return a field's value as it is shown."""
    if isinstance(value, str):
        return value
    # json.dumps takes 2 us for what str does in 0.1
    return str(value) if type(value) is int else json.dumps(value, ensure_ascii=False)


def _nested_text(field: bytes) -> str:
    return json.dumps(READERS[field[0]](field, 1, 0)[0], ensure_ascii=False)


# The x-death of thousands of letters is the same within a second.
_known_text = lru_cache(maxsize=512)(_nested_text)


def stable(block: bytes, headers: Collection[str]) -> bytes:
    """Return the block without what differs from delivery to delivery, for a message's identity.

    `headers` are the names of those that `decode` found. Also without an empty header table: dropping
    x-delivery-count may leave one.
    """
    if headers and DELIVERY_HEADERS.isdisjoint(headers):
        return block
    return edit(block, drop_headers=DELIVERY_HEADERS.__contains__)


def delivery_count(block: bytes) -> int:
    """Return how often a quorum queue has given this letter out and got it back; 0 where it says nothing
    (`rabbit_quorum_queue`, header `x-delivery-count`)."""
    if b"\x10x-delivery-count" not in block:
        return 0
    return count_of(decode(block).headers.get("x-delivery-count")) or 0
