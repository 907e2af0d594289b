"""From a stored RocketMQ message to a record. Field names in `headers` are Java's (design section 9)."""

from collections.abc import Callable, Mapping
from hashlib import sha256

from dlq.connectors.base import ReadRequest
from dlq.connectors.remoting import ProtocolError
from dlq.connectors.rocket_bodies import COMPRESSED, plain_body
from dlq.connectors.rocket_message import StoredMessage, host_name, offset_message_id, parse_properties
from dlq.core.clock import now
from dlq.core.identity import content_id
from dlq.core.record import Record

DEAD_LETTERS = "%DLQ%"
RETRY = "%RETRY%"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
FINISHED = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
_END_OF_TIME = 253_402_300_800_000
_ENCODINGS = {0: "deflate", 1: "lz4", 2: "zstd", 3: "deflate"}
"""HTTP's names; its `deflate` is the zlib format."""

Maker = Callable[[StoredMessage], Record]


def record_maker(request: ReadRequest, broker: str, version: str, node: str) -> Maker:
    """The function that makes records of the messages of one broker node, for one pull."""
    read_key = request.key_reader()
    source = request.source.name
    id_prefix = source.encode(), node.encode()
    hosts: dict[bytes, str] = {}

    def make(message: StoredMessage) -> Record:
        m = message
        properties = parse_properties(m.properties)
        unique_key = properties.get("UNIQ_KEY")
        physical_id = offset_message_id(m.store_host, m.commit_log_offset)
        headers = {
            "msgId": physical_id,
            "queueId": str(m.queue_id),
            "queueOffset": str(m.queue_offset),
            "commitLogOffset": str(m.commit_log_offset),
            "preparedTransactionOffset": str(m.prepared_transaction_offset),
            "sysFlag": str(m.sys_flag),
            "flag": str(m.flag),
            "reconsumeTimes": str(m.reconsume_times),
            "bornTimestamp": str(m.born_at),
            "bornHost": _named(m.born_host, hosts),
            "storeTimestamp": str(m.stored_at),
            "storeHost": _named(m.store_host, hosts),
        }
        body_digest = sha256(m.body)
        place = b"%d:%d:%d" % (m.queue_id, m.queue_offset, m.commit_log_offset)
        topic = m.topic
        is_dead_letter = topic.startswith(DEAD_LETTERS)
        group = topic[len(DEAD_LETTERS) :] if is_dead_letter else None
        origin = origin_of(properties, group) if group is not None else _transaction_origin(topic, properties)
        return Record(
            content_id(*id_prefix, topic.encode(), place, m.properties, body_digest.digest()),
            source, broker, "rocketmq", topic, version, node, m.queue_id, m.queue_offset,
            unique_key, physical_id, properties.get("CORRELATION_ID"), properties.get("KEYS", "").split(),
            read_key(unique_key, headers, properties, _readable(m)),
            "topic" if origin else None, origin, None, None, group, None, None,
            now(), _micros(m.born_at), None, _micros(m.stored_at), None,
            None, (), m.reconsume_times if is_dead_letter else None, None,
            headers, m.properties, properties,
            m.body, len(m.body), body_digest.hexdigest(), None,
            _ENCODINGS.get(m.sys_flag >> 8 & 7) if m.sys_flag & COMPRESSED else None,
            None, None, m.sys_flag, request.pull_id, request.mode,
        )  # fmt: skip

    return make


def origin_of(properties: Mapping[str, str], group: str) -> str | None:
    """The topic that a dead letter of `group` came from.

    REAL_TOPIC is no evidence: after a delayed retry it is the retry topic. A POP consumer's retry topic
    holds the origin: `%RETRY%<group>_<topic>`, or with `+` (common/KeyBuilder.parseNormalTopic).
    """
    topic = properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC")
    for mark in ("+", "_"):
        topic = topic.removeprefix(f"{RETRY}{group}{mark}") if topic else None
    return topic or None


def _transaction_origin(topic: str, properties: Mapping[str, str]) -> str | None:
    if topic == FINISHED:
        return None
    return properties.get("REAL_TOPIC") if topic in (HALF, DISCARDED) else topic


def _micros(millis: int) -> int | None:
    """Producers may send any time; what no calendar has stays in `headers` alone."""
    return millis * 1000 if 0 < millis < _END_OF_TIME else None


def _named(packed: bytes, known: dict[bytes, str]) -> str:
    if packed not in known:
        if len(known) > 10_000:
            known.clear()
        known[packed] = host_name(packed)
    return known[packed]


def _readable(message: StoredMessage) -> bytes:
    """The body for the business key: as the producer wrote it, where it can be had."""
    try:
        return plain_body(message.body, message.sys_flag)
    except ProtocolError:
        return message.body
