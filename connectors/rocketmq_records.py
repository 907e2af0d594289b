"""From a stored RocketMQ message to a record. Field names in `headers` are Java's (design section 9)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.remoting import ProtocolError
from dlq.connectors.rocket_bodies import COMPRESSED, plain_body
from dlq.connectors.rocket_message import StoredMessage, host_name, parse_properties
from dlq.core.clock import now
from dlq.core.identity import ID_HEX_DIGITS, framed
from dlq.core.record import Record

DEAD_LETTERS = "%DLQ%"
RETRY = "%RETRY%"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
FINISHED = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
_END_OF_TIME = 253_402_300_800_000
_SHAPES = 10_000
_ENCODINGS = {0: "deflate", 1: "lz4", 2: "zstd", 3: "deflate"}
"""HTTP's names; its `deflate` is the zlib format."""

Maker = Callable[[Sequence[StoredMessage]], list[Record]]
# A named tuple's own constructor costs three times as much.
_record = Record._make


class _Alike(NamedTuple):
    """What messages share that differ in nothing but offset, times and content.

    `place` is framed for identities; `group` is None unless the topic holds dead letters.
    """

    place: bytes
    group: str | None
    origin: Callable[[Mapping[str, str]], str | None]
    store_host: str
    headers: dict[str, str]
    attempts: int | None
    encoding: str | None


def record_maker(request: ReadRequest, broker: str, version: str, node: str) -> Maker:
    """The function that makes records of the messages of one broker node, for one pull."""
    read_key = request.key_reader()
    source, pull_id, mode = request.source.name, request.pull_id, request.mode
    known: dict[tuple[object, ...], _Alike] = {}

    def make(message: StoredMessage, captured_at: int) -> Record:
        (topic, queue_id, offset, position, sys_flag, flag, born_at, born_host, stored_at, store_host,
         times, prepared, _crc, body, raw) = message  # fmt: skip
        shape = (topic, queue_id, sys_flag, flag, times, prepared, born_host, store_host)
        if shape not in known:
            if len(known) > _SHAPES:
                known.clear()
            known[shape] = _alike(source, node, message)
        place, group, origin_in, host, alike, attempts, encoding = known[shape]
        headers = alike.copy()
        headers["msgId"] = physical_id = f"{host}{position:016X}"
        headers["queueOffset"] = str(offset)
        headers["commitLogOffset"] = str(position)
        headers["bornTimestamp"] = str(born_at)
        headers["storeTimestamp"] = str(stored_at)
        properties = parse_properties(raw)
        unique_key = properties.get("UNIQ_KEY")
        origin = origin_in(properties)
        digest = sha256(body).hexdigest()
        where = b"%d:%d:%d" % (queue_id, offset, position)
        # content_id(where, raw, the digest; after=place), at half its price
        identity = b"%b%d:%b%d:%b32:%b" % (place, len(where), where, len(raw), raw, bytes.fromhex(digest))
        return _record((
            sha256(identity).hexdigest()[:ID_HEX_DIGITS],
            source, broker, "rocketmq", topic, version, node, queue_id, offset,
            unique_key, physical_id, properties.get("CORRELATION_ID"), properties.get("KEYS", "").split(),
            read_key(unique_key, headers, properties, body if encoding is None else _readable(message)),
            "topic" if origin else None, origin, None, None, group, None, None,
            captured_at, _micros(born_at), None, _micros(stored_at), None,
            None, (), attempts, None,
            headers, raw, properties,
            body, len(body), digest, None, encoding,
            None, None, sys_flag, pull_id, mode,
        ))  # fmt: skip

    def make_all(messages: Sequence[StoredMessage]) -> list[Record]:
        captured_at = now()
        return [make(message, captured_at) for message in messages]

    return make_all


def _alike(source: str, node: str, message: StoredMessage) -> _Alike:
    topic, sys_flag = message.topic, message.sys_flag
    group = topic[len(DEAD_LETTERS) :] if topic.startswith(DEAD_LETTERS) else None
    return _Alike(
        framed("\0".join((source, node, topic)).encode()),
        group,
        _origin_in(topic) if group is None else partial(origin_of, group=group),
        message.store_host.hex().upper(),
        _fixed_headers(message),
        None if group is None else message.reconsume_times,
        _ENCODINGS.get(sys_flag >> 8 & 7) if sys_flag & COMPRESSED else None,
    )


def _origin_in(topic: str) -> Callable[[Mapping[str, str]], str | None]:
    if topic in (HALF, DISCARDED):
        return lambda properties: properties.get("REAL_TOPIC")
    return lambda _properties: None if topic == FINISHED else topic


def _fixed_headers(message: StoredMessage) -> dict[str, str]:
    """All fields in Java's order; those that differ from message to message are filled in later."""
    return {
        "msgId": "",
        "queueId": str(message.queue_id),
        "queueOffset": "",
        "commitLogOffset": "",
        "preparedTransactionOffset": str(message.prepared_transaction_offset),
        "sysFlag": str(message.sys_flag),
        "flag": str(message.flag),
        "reconsumeTimes": str(message.reconsume_times),
        "bornTimestamp": "",
        "bornHost": host_name(message.born_host),
        "storeTimestamp": "",
        "storeHost": host_name(message.store_host),
    }


def origin_of(properties: Mapping[str, str], group: str) -> str | None:
    """The topic that a dead letter of `group` came from.

    REAL_TOPIC is no evidence: after a delayed retry it is the retry topic. A POP consumer's retry topic
    holds the origin: `%RETRY%<group>_<topic>`, or with `+` (common/KeyBuilder.parseNormalTopic).
    """
    topic = properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC") or None
    if topic is None or not topic.startswith(RETRY):
        return topic
    marked = topic.removeprefix(f"{RETRY}{group}")
    return marked[1:] or None if marked[:1] in ("+", "_", "") else topic


def _micros(millis: int) -> int | None:
    """Producers may send any time; what no calendar has stays in `headers` alone."""
    return millis * 1000 if 0 < millis < _END_OF_TIME else None


def _readable(message: StoredMessage) -> bytes:
    """The body for the business key: as the producer wrote it, where it can be had."""
    try:
        return plain_body(message.body, message.sys_flag)
    except ProtocolError:
        return message.body
