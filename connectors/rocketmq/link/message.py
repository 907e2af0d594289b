"""RocketMQ's stored message: its bytes taken apart and put together, nothing lost.

Layout (common/message/MessageDecoder): size, magic, body CRC, queue id, flag, queue offset, commit log
offset, sysFlag, born time and host, store time and host, reconsume times, prepared transaction offset,
body, topic, properties. Magic V1 has a topic length of one byte, V2 (5.x, topics over 127 bytes) of two.
Hosts are 4 or 16 bytes and a port.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.records.bodies import plain_body

TRANSACTION = 0xC
COMMITTED = 0x8
BORN_V6, STORED_V6 = 0x10, 0x20
BATCH = 0xC0
"""Both bits: the body is a batch of messages (5.x, topics whose cq.type is BatchCQ)."""
COMPRESSION = 0x701
"""The bits that say whether and how the body is compressed; the only ones a resend may carry."""
V1, V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_SIZE = struct.Struct(">iI")
_BEFORE_BODY = [struct.Struct(f">iIiiiqqiq{born}sq{stored}siqi") for stored in (8, 20) for born in (8, 20)]
"""By the two bits of sysFlag that say which hosts are of IPv6."""
_FLAGS_AT, _HOSTS = 39, BORN_V6 | STORED_V6
_INNER = struct.Struct(">iiiii")
_OFFSET = struct.Struct(">q")
_KNOWN = (V1, V2, _BLANK)
_SMALLEST = _BEFORE_BODY[0].size
_MOST_OFFSET = 2**63
_MOST_IN_BATCH = 2**15 - 1
"""A batch's number of messages is a short (BatchConsumeQueue), and its body a message's: 4 MiB by default."""


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


def split(buffer: bytes) -> list[bytes]:
    """Return the messages of an answer's body as they are stored. Raises ProtocolError where one is none."""
    at, end, found = 0, len(buffer), []
    while at < end:
        try:
            size, magic = _SIZE.unpack_from(buffer, at)
        except struct.error as error:
            raise ProtocolError(f"a damaged message at {at}: {error}") from error
        smallest = 8 if magic == _BLANK else _SMALLEST
        if size < smallest or at + size > end or magic not in _KNOWN:
            raise ProtocolError(f"a message of {size} bytes and magic {magic:#x} at {at} of {end}")
        if magic != _BLANK:
            found.append(buffer[at : at + size])
        at += size
    return found


def decode(buffer: bytes) -> Iterator[StoredMessage]:
    """Return the messages of an answer's body, one after another. Raises ProtocolError: damaged."""
    return map(parse, split(buffer))


def queue_offset(message: bytes) -> int:
    """Return the queue offset of a message as it is stored."""
    offset: int = _OFFSET.unpack_from(message, 20)[0]
    return offset


def is_batch(message: bytes) -> bool:
    """Return whether it holds messages of its own (see `expand`)."""
    return message[_FLAGS_AT] & BATCH == BATCH


def parse(message: bytes) -> StoredMessage:
    """Return one message as it is stored. Raises ProtocolError when it is damaged."""
    return StoredMessage._make(fields(message))


def fields(message: bytes) -> tuple[Any, ...]:
    """Return the fields of a stored message in their order. Raises ProtocolError when it is damaged."""
    try:
        return _fields(message)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"a damaged message: {type(error).__name__}") from error


def _fields(message: bytes) -> tuple[Any, ...]:
    before = _BEFORE_BODY[(message[_FLAGS_AT] & _HOSTS) >> 4]
    (
        _, magic, crc, queue, flag, offset, position, sys_flag, born, born_host, stored, store_host,
        times, prepared, length,
    ) = before.unpack_from(message)  # fmt: skip
    body_end = before.size + length
    topic_start = body_end + (2 if magic == V2 else 1)
    topic_end = topic_start + int.from_bytes(message[body_end:topic_start], "big")
    first = topic_end + 2
    last = first + (message[topic_end] << 8 | message[topic_end + 1])
    if length < 0 or last > len(message):
        raise ProtocolError("a message is longer than it says")
    return (
        message[topic_start:topic_end].decode(),
        queue, offset, position, sys_flag, flag, born, born_host, stored, store_host, times, prepared, crc,
        message[before.size:body_end],
        message[first:last],
    )  # fmt: skip


def encode(message: StoredMessage) -> bytes:
    """Return the stored form of `message`; the inverse of `decode`."""
    topic = message.topic.encode()
    long_topic = len(topic) > 127
    before = _BEFORE_BODY[(message.sys_flag & _HOSTS) >> 4]
    rest = b"".join(
        (
            message.body, struct.pack(">H" if long_topic else ">B", len(topic)), topic,
            struct.pack(">H", len(message.properties)), message.properties,
        )
    )  # fmt: skip
    head = before.pack(
        before.size + len(rest), V2 if long_topic else V1, message.body_crc, message.queue_id, message.flag,
        message.queue_offset, message.commit_log_offset, message.sys_flag, message.born_at,
        message.born_host, message.stored_at, message.store_host,
        message.reconsume_times, message.prepared_transaction_offset, len(message.body),
    )  # fmt: skip
    return head + rest


def expand(message: StoredMessage) -> list[StoredMessage]:
    """Return the messages in an inner batch, each with its own flag, body and properties; others stay as they
    are.

    They take the queue offsets that follow the batch's. Raises ProtocolError when the batch is damaged.
    """
    if message.sys_flag & BATCH != BATCH:
        return [message]
    if message.queue_offset >= _MOST_OFFSET - _MOST_IN_BATCH:
        raise ProtocolError(f"a batch at offset {message.queue_offset}")
    packed, at = plain_body(message.body, message.sys_flag), 0
    found: list[StoredMessage] = []
    sys_flag = message.sys_flag & ~(BATCH | COMPRESSION)
    while at < len(packed):
        if len(found) == _MOST_IN_BATCH:
            raise ProtocolError(f"a batch of more than {_MOST_IN_BATCH} messages")
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
    if length < 0 or end > min(at + size, len(packed)):
        raise ProtocolError(f"a damaged batch at {at}")
    properties = packed[body_end + 2 : end]
    changed = outer._replace(queue_offset=outer.queue_offset + n, sys_flag=sys_flag, flag=flag, body_crc=crc)
    return changed._replace(body=packed[start:body_end], properties=properties), at + size


def parse_properties(block: bytes) -> dict[str, str]:
    """Return the property block as a map; where a name comes twice the last one wins, as in Java."""
    pairs = [
        pair.split("\x01", 1) for pair in block.decode("utf-8", "backslashreplace").split("\x02") if pair
    ]
    try:
        return dict(pairs)
    except ValueError:
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return a map as a property block."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def host_name(packed: bytes) -> str:
    """Return an address and port as people write them: 10.0.0.7:10911, [fe80::1]:10911."""
    address, port = packed[:-4], int.from_bytes(packed[-4:], "big")
    if len(address) == 16:
        return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"
    return f"{socket.inet_ntoa(address)}:{port}"
