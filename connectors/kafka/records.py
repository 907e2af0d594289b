"""From a message of the client library to a record."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.interchange.values import count_of, from_millis, integer
from dlq.connectors.kafka.header_texts import text_of, texts_of
from dlq.connectors.kafka.raw_record import (
    HAS_ORIGINAL,
    LOG_APPEND_TIME,
    VALUE_WAS_NULL,
    Headers,
    RawRecord,
    encode,
)
from dlq.core.clock import datable, now
from dlq.core.columns import Columns, Constant
from dlq.core.identity import content_id, framed
from dlq.core.kafka_headers import SHARE_GROUP, Origin, died_at
from dlq.core.record import Record

UNRESOLVED = 8
"""`flags` of a record, beside those of its block: what a share group's dead letter points to was not had."""
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
_POINTS_TO = f"{SHARE_GROUP}offset"
_APPENDED = 2
"""TIMESTAMP_LOG_APPEND_TIME."""


class Original(NamedTuple):
    """What a pointer led to: the record, or why there is none to show."""

    raw: RawRecord | None = None
    value: bytes | None = None
    why_not: str = ""


Maker = Callable[[Sequence[Any], Mapping[int, Original]], Sequence[Record]]


def raw_of(message: Any) -> RawRecord:
    """What a message is beside its value."""
    kind, timestamp = message.timestamp()
    headers = message.headers() or ()
    return RawRecord(
        message.key(), headers, timestamp if kind else -1, kind == _APPENDED, message.value() is None
    )


def is_pointer(headers: Headers) -> bool:
    """Whether a share group's broker wrote it (KIP-1191), with the record or without."""
    return any(name == _POINTS_TO for name, _ in headers)


def record_maker(request: ReadRequest, broker: str, cluster: str, topic_ids: Mapping[str, str]) -> Maker:
    """The function that makes records of messages, for one pull.

    It takes the messages, and by their number among them what those that are pointers led to.
    """
    source = request.source.name.encode()
    starts = {
        topic: framed(b"\0".join((source, cluster.encode(), topic_id.encode(), topic.encode())))
        for topic, topic_id in topic_ids.items()
    }
    read_key = request.key_reader()
    captured_at = now()

    def make(messages: Sequence[Any], originals: Mapping[int, Original]) -> Sequence[Record]:
        if not messages:
            return []
        rows = [_row(message, originals.get(i), starts, read_key) for i, message in enumerate(messages)]
        named = zip(_NAMES, zip(*rows, strict=True), strict=True)
        constant = {
            "source": request.source.name,
            "broker": broker,
            "broker_kind": "kafka",
            "broker_node": cluster,
            "captured_at": captured_at,
            "pull_id": request.pull_id,
            "mode": request.mode,
        }
        columns: dict[str, Any] = {name: Constant(value, len(rows)) for name, value in constant.items()}
        columns |= {name: list(column) for name, column in named}
        columns["origin_kind"] = ["topic" if origin else None for origin in columns["origin"]]
        return Columns.of(len(rows), **columns)

    return make


_NAMES = (
    "record_id", "dead_letter_queue", "queue_id", "offset", "physical_id", "message_id", "keys", "key",
    "origin", "origin_group", "published_at", "dead_at", "attempts", "headers", "raw_properties",
    "properties", "body", "body_size", "body_sha256", "flags", "content_type",
)  # fmt: skip


def _row(
    message: Any, original: Original | None, starts: Mapping[str, bytes], read_key: Any
) -> tuple[Any, ...]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    value, raw = message.value(), raw_of(message)
    block = encode(raw)
    place = b"%d:%d" % (partition, offset)
    body, digest = value or b"", sha256(value or b"")
    identity = content_id(place, block, digest.digest(), after=starts[topic])
    headers = texts_of(raw.headers)
    shown, flags = raw, 0
    if original is not None and original.raw is not None:
        shown, value = original.raw, original.value
        body, digest = value or b"", sha256(value or b"")
        headers = {**texts_of(shown.headers), **headers}
        block, flags = encode(raw._replace(original=shown)), HAS_ORIGINAL
    elif original is not None and value is None and raw.key is None:
        flags = UNRESOLVED
    flags |= (VALUE_WAS_NULL if value is None else 0) | (LOG_APPEND_TIME if raw.is_log_append else 0)
    died = died_at(headers, topic)
    message_id = coordinates(died)
    properties = _properties(topic, partition, offset, raw, shown, original)
    key = text_of(shown.key) if shown.key is not None else None
    published, dead = _times(died, headers, raw, shown)
    return (
        identity, topic, partition, offset, f"{topic}-{partition}@{offset}", message_id,
        (key,) if key else (), read_key(message_id, headers, properties, body),
        died and died.topic, died and died.group, published, dead,
        count_of(headers.get(f"{SHARE_GROUP}delivery.count")), headers, block,
        properties, body, len(body), digest.hexdigest(), flags,
        headers.get("content-type") or headers.get("contentType") or None,
    )  # fmt: skip


def coordinates(died: Origin | None) -> str | None:
    """Names the message that died; two groups' dead letters of it have the same."""
    if died is None or integer(died.partition) is None or integer(died.offset, 64) is None:
        return None
    return f"{died.topic}-{died.partition}@{died.offset}"


def _properties(
    topic: str, partition: int, offset: int, raw: RawRecord, shown: RawRecord, original: Original | None
) -> dict[str, str]:
    """The fixed fields of the dead letter by their Java names; `pointer` says what became of one."""
    properties = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "timestamp": str(raw.timestamp),
        "timestampType": APPEND_TIME if raw.is_log_append else CREATE_TIME,
    }
    if shown.key is not None:
        properties["key"] = text_of(shown.key)
    if original is not None:
        properties["pointer"] = "resolved" if original.raw is not None else original.why_not
    return properties


def _times(
    died: Origin | None, headers: Mapping[str, str], raw: RawRecord, shown: RawRecord
) -> tuple[int | None, int | None]:
    """When it was published, and when it died; what is not told is not known."""
    stored = datable(raw.timestamp * 1000) if raw.timestamp >= 0 else None
    if died is not None and died.told_by.keeps_time and not raw.is_log_append:
        return stored, None
    original = from_millis(headers.get(died.told_by.timestamp)) if died is not None else None
    if original is None and shown is not raw and shown.timestamp >= 0:
        original = datable(shown.timestamp * 1000)
    return original, stored
