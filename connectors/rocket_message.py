"""RocketMQ's stored message: its bytes taken apart and put together, nothing lost.

Layout (common/message/MessageDecoder): size, magic, body CRC, queue id, flag, queue offset, commit log
offset, sysFlag, born time and host, store time and host, reconsume times, prepared transaction offset,
body, topic, properties. Magic V1 has a topic length of one byte, V2 (5.x, topics over 127 bytes) of two.
Hosts are 4 or 16 bytes and a port.
"""

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dlq.connectors.remoting import ProtocolError
from dlq.connectors.rocket_bodies import plain_body
from dlq.core.columns import Maps

TRANSACTION = 0xC
COMMITTED = 0x8
BORN_V6, STORED_V6 = 0x10, 0x20
BATCH = 0xC0
"""Both bits: the body is a batch of messages (5.x, topics whose cq.type is BatchCQ)."""
COMPRESSION = 0x701
"""The bits that say whether and how the body is compressed; the only ones a resend may carry."""
_V1, _V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_SIZE = struct.Struct(">iI")
_HEAD = struct.Struct(">iIiiiqqiq")
_TAIL = struct.Struct(">iqi")
_PLAIN = struct.Struct(">iIiiiqqiq8sq8siqi")
"""The whole fixed part when both hosts are IPv4: the usual case, in one step."""
_INNER = struct.Struct(">iiiii")
_V6 = BORN_V6 | STORED_V6
_TEXT = bytes(range(256)).translate(None, b"\1\2")


class StoredMessage(NamedTuple):
    """One message as the broker keeps it. Times are milliseconds; hosts are address and port, packed."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    flag: int
    born_at: int
    born_host: bytes
    stored_at: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: bytes


# A named tuple's own constructor costs twice as much.
_stored = StoredMessage._make


def decode(buffer: bytes) -> Iterator[StoredMessage]:
    """The messages of an answer's body, one after another. Raises ProtocolError where they are damaged."""
    at, end = 0, len(buffer)
    while at < end:
        try:
            size, magic = _SIZE.unpack_from(buffer, at)
            if size < 8 or at + size > end:
                raise ProtocolError(f"a message of {size} bytes at {at} of {end}")
            if magic != _BLANK:
                yield _message(buffer, at, size, magic)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise ProtocolError(f"a damaged message at {at}: {type(error).__name__}") from error
        at += size


def _message(buffer: bytes, at: int, size: int, magic: int) -> StoredMessage:
    if buffer[at + 39] & _V6:
        fixed, start = _fixed(buffer, at)
    else:
        fixed, start = _PLAIN.unpack_from(buffer, at), at + _PLAIN.size
    (_, _, crc, queue, flag, offset, position, sys_flag, born, born_host, stored, store_host, times, prepared,
     length) = fixed  # fmt: skip
    body_end = start + length
    if magic == _V1:
        topic_start, topic_length = body_end + 1, buffer[body_end]
    elif magic == _V2:
        topic_start, topic_length = body_end + 2, int.from_bytes(buffer[body_end : body_end + 2], "big")
    else:
        raise ProtocolError(f"unknown message magic {magic:#x} at {at}")
    topic_end = topic_start + topic_length
    first = topic_end + 2
    last = first + (buffer[topic_end] << 8 | buffer[topic_end + 1])
    if length < 0 or last > at + size:
        raise ProtocolError(f"a message at {at} is longer than it says")
    return _stored((
        buffer[topic_start:topic_end].decode(),
        queue, offset, position, sys_flag, flag, born, born_host, stored, store_host, times, prepared, crc,
        buffer[start:body_end],
        buffer[first:last],
    ))  # fmt: skip


def _fixed(buffer: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    """What _PLAIN reads, where a host is IPv6."""
    head = _HEAD.unpack_from(buffer, at)
    sys_flag = head[7]
    born_host, at = _packed_host(buffer, at + _HEAD.size, sys_flag & BORN_V6)
    (stored,) = struct.unpack_from(">q", buffer, at)
    store_host, at = _packed_host(buffer, at + 8, sys_flag & STORED_V6)
    return (*head, born_host, stored, store_host, *_TAIL.unpack_from(buffer, at)), at + _TAIL.size


def _packed_host(buffer: bytes, at: int, is_v6: int) -> tuple[bytes, int]:
    end = at + (20 if is_v6 else 8)
    return buffer[at:end], end


def encode(message: StoredMessage) -> bytes:
    """The stored form of `message`; the inverse of `decode`."""
    topic = message.topic.encode()
    long_topic = len(topic) > 127
    rest = b"".join(
        (
            message.born_host, struct.pack(">q", message.stored_at), message.store_host,
            _TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
            message.body, struct.pack(">H" if long_topic else ">B", len(topic)), topic,
            struct.pack(">H", len(message.properties)), message.properties,
        )
    )  # fmt: skip
    head = _HEAD.pack(
        _HEAD.size + len(rest), _V2 if long_topic else _V1, message.body_crc, message.queue_id, message.flag,
        message.queue_offset, message.commit_log_offset, message.sys_flag, message.born_at,
    )  # fmt: skip
    return head + rest


def expand(message: StoredMessage) -> list[StoredMessage]:
    """The messages in an inner batch, each with its own flag, body and properties; others stay as they are.

    They take the queue offsets that follow the batch's. Raises ProtocolError when the batch is damaged.
    """
    if message.sys_flag & BATCH != BATCH:
        return [message]
    packed, at = plain_body(message.body, message.sys_flag), 0
    found: list[StoredMessage] = []
    sys_flag = message.sys_flag & ~(BATCH | COMPRESSION)
    while at < len(packed):
        inner, at = _inner(packed, at, message, sys_flag, len(found))
        found.append(inner)
    return found


def _inner(packed: bytes, at: int, outer: StoredMessage, sys_flag: int, n: int) -> tuple[StoredMessage, int]:
    try:
        size, _magic, crc, flag, length = _INNER.unpack_from(packed, at)
        start, body_end = at + _INNER.size, at + _INNER.size + length
        (properties_length,) = struct.unpack_from(">H", packed, body_end)
    except struct.error as error:
        raise ProtocolError(f"a damaged batch at {at}") from error
    end = body_end + 2 + properties_length
    if length < 0 or size < 8 or not body_end < end <= len(packed):
        raise ProtocolError(f"a damaged batch at {at}")
    properties = packed[body_end + 2 : end]
    changed = outer._replace(queue_offset=outer.queue_offset + n, sys_flag=sys_flag, flag=flag, body_crc=crc)
    return changed._replace(body=packed[start:body_end], properties=properties), at + size


def parse_properties(block: bytes) -> dict[str, str]:
    """The property block as a map; where a name comes twice the last one wins, as in Java."""
    pairs = [
        pair.split("\x01", 1) for pair in block.decode("utf-8", "backslashreplace").split("\x02") if pair
    ]
    try:
        return dict(pairs)
    except ValueError:
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def parse_blocks(blocks: Sequence[bytes]) -> list[dict[str, str]] | Maps:
    """The property blocks of many messages; by name where all have the same names in the same order."""
    return _parse_alike(blocks) or [parse_properties(block) for block in blocks]


def _parse_alike(blocks: Sequence[bytes]) -> Maps | None:
    """All at once, where each block is nothing but the same number of complete pairs."""
    count, rows, joined = blocks[0].count(b"\2"), len(blocks), b"".join(blocks)
    if not count or any(block.count(b"\2") != count or block[-1] != 2 for block in blocks):
        return None
    if joined.translate(None, _TEXT) != b"\1\2" * (count * rows):
        return None
    flat = joined.decode("utf-8", "backslashreplace").replace("\2", "\1").split("\1")
    names = flat[: 2 * count : 2]
    if len(set(names)) != count or flat[:-1:2] != names * rows:
        return None
    return Maps({name: flat[2 * i + 1 : -1 : 2 * count] for i, name in enumerate(names)}, rows)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A map as a property block."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def host_name(packed: bytes) -> str:
    """An address and port as people write them: 10.0.0.7:10911, [fe80::1]:10911."""
    address, port = packed[:-4], int.from_bytes(packed[-4:], "big")
    if len(address) == 16:
        return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"
    return f"{socket.inet_ntoa(address)}:{port}"


def offset_message_id(store_host: bytes, commit_log_offset: int) -> str:
    """The broker's own message id: where it lies, as hex (32 digits, 56 for IPv6)."""
    return (store_host + commit_log_offset.to_bytes(8, "big")).hex().upper()
