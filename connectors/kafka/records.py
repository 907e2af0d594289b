"""From a message of the client library to a record."""

import operator
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.interchange.values import count_of, from_millis, integer
from dlq.connectors.kafka.header_texts import text_of, texts_column, texts_of
from dlq.connectors.kafka.raw_record import (
    HAS_ORIGINAL,
    LOG_APPEND_TIME,
    VALUE_WAS_NULL,
    Headers,
    RawRecord,
    encode,
)
from dlq.core.clock import datable, now
from dlq.core.columns import Column, Columns, Constant, Maps, collapsed
from dlq.core.identity import content_id, framed
from dlq.core.kafka_headers import SHARE_GROUP, Origin, died_at
from dlq.core.record import Record

UNRESOLVED = 8
"""`flags` of a record, beside those of its block: what a share group's dead letter points to was not had."""
CREATE_TIME, APPEND_TIME = "CreateTime", "LogAppendTime"
_POINTS_TO = f"{SHARE_GROUP}offset"
_DELIVERIES = f"{SHARE_GROUP}delivery.count"
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
    captured_at = now()

    def make(messages: Sequence[Any], originals: Mapping[int, Original]) -> Sequence[Record]:
        if not messages:
            return []
        rows = len(messages)
        places = [(message.topic(), message.partition(), message.offset()) for message in messages]
        topics, partitions, offsets = zip(*places, strict=True)
        raws, values = [*map(raw_of, messages)], [message.value() for message in messages]
        blocks, digests = [*map(encode, raws)], [sha256(value or b"") for value in values]
        ids = [
            content_id(b"%d:%d" % place[1:], block, digest.digest(), after=starts[place[0]])
            for place, block, digest in zip(places, blocks, digests, strict=True)
        ]
        shown, flags = [*raws], [0] * rows
        for number, original in originals.items():
            raw = raws[number]
            if original.raw is not None:
                shown[number], values[number] = original.raw, original.value
                digests[number] = sha256(original.value or b"")
                blocks[number] = encode(raw._replace(original=original.raw))
                flags[number] = HAS_ORIGINAL
            elif raw.is_null and raw.key is None:
                flags[number] = UNRESOLVED
        headers, keys = (
            _headers(raws, shown),
            [None if one.key is None else text_of(one.key) for one in shown],
        )
        properties = _properties(places, raws, keys, originals)
        texts, bodies = [*headers], [value or b"" for value in values]
        deaths = [*map(died_at, texts, topics)]
        message_ids = [*map(coordinates, deaths)]
        times = [*map(_times, deaths, texts, raws, shown)]

        def all_the(value: object) -> Constant:
            return Constant(value, rows)

        return Columns.of(
            rows,
            record_id=ids,
            source=all_the(request.source.name),
            broker=all_the(broker),
            broker_kind=all_the("kafka"),
            broker_node=all_the(cluster),
            dead_letter_queue=collapsed(topics),
            queue_id=collapsed(partitions),
            offset=offsets,
            physical_id=[f"{topic}-{partition}@{offset}" for topic, partition, offset in places],
            message_id=message_ids,
            keys=[(key,) if key else () for key in keys],
            key=_business_keys(request, message_ids, texts, properties, bodies),
            origin_kind=["topic" if died else None for died in deaths],
            origin=[died and died.topic for died in deaths],
            origin_group=[died and died.group for died in deaths],
            captured_at=all_the(captured_at),
            published_at=[published for published, _ in times],
            dead_at=[dead for _, dead in times],
            attempts=[count_of(one.get(_DELIVERIES)) for one in texts],
            headers=headers,
            raw_properties=blocks,
            properties=properties,
            body=bodies,
            body_size=[*map(len, bodies)],
            body_sha256=[digest.hexdigest() for digest in digests],
            content_type=[one.get("content-type") or one.get("contentType") or None for one in texts],
            flags=[
                flag | (value is None and VALUE_WAS_NULL) | (raw.is_log_append and LOG_APPEND_TIME)
                for flag, value, raw in zip(flags, values, raws, strict=True)
            ],
            pull_id=all_the(request.pull_id),
            mode=all_the(request.mode),
        )

    return make


def coordinates(died: Origin | None) -> str | None:
    """Names the message that died; two groups' dead letters of it have the same."""
    if died is None or integer(died.partition) is None or integer(died.offset, 64) is None:
        return None
    return f"{died.topic}-{died.partition}@{died.offset}"


def _business_keys(
    request: ReadRequest,
    message_ids: Sequence[str | None],
    headers: Sequence[Mapping[str, str]],
    properties: Column,
    bodies: Sequence[bytes],
) -> Column:
    if request.source.key == "message_id":
        return message_ids
    return [*map(request.key_reader(), message_ids, headers, properties, bodies)]


def _headers(raws: Sequence[RawRecord], shown: Sequence[RawRecord]) -> Column:
    """Of a resolved pointer those of the original, too."""
    if all(map(operator.is_, raws, shown)):
        return texts_column([raw.headers for raw in raws])
    return [{**texts_of(one.headers), **texts_of(raw.headers)} for raw, one in zip(raws, shown, strict=True)]


def _properties(
    places: Sequence[tuple[str, int, int]],
    raws: Sequence[RawRecord],
    keys: Sequence[str | None],
    originals: Mapping[int, Original],
) -> Column:
    """The fixed fields of the dead letters by their Java names; `pointer` says what became of one."""
    topics, partitions, offsets = zip(*places, strict=True)
    columns: dict[str, Sequence[str | None]] = {
        "topic": topics,
        "partition": [*map(str, partitions)],
        "offset": [*map(str, offsets)],
        "timestamp": [str(raw.timestamp) for raw in raws],
        "timestampType": [APPEND_TIME if raw.is_log_append else CREATE_TIME for raw in raws],
        "key": keys,
        "pointer": [_became(originals.get(number)) for number in range(len(raws))],
    }
    told = {name: column for name, column in columns.items() if any(map(_is_told, column))}
    if not any(None in column for column in told.values()):
        return Maps(told, len(raws))
    rows = zip(*told.values(), strict=True)
    return [{name: text for name, text in zip(told, row, strict=True) if text is not None} for row in rows]


def _is_told(text: str | None) -> bool:
    return text is not None


def _became(original: Original | None) -> str | None:
    if original is None:
        return None
    return "resolved" if original.raw is not None else original.why_not


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
