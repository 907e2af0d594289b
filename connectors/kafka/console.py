"""From a line of JSONL that no export wrote to what `records` makes of a message.

`properties` may say `partition`, `offset`, `timestamp` and `key` (text, or base64:...); `null_value` set to
true makes an empty body a tombstone.
"""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.jsonl.values import Texts, count_of, from_millis, integer
from dlq.connectors.kafka.records.header_texts import bytes_of
from dlq.connectors.kafka.records.messages import coordinates
from dlq.connectors.kafka.records.raw import VALUE_WAS_NULL, RawRecord, encode
from dlq.core.errors import UsageError
from dlq.core.headers.kafka_headers import died_at


def columns(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    """Return the columns of a record; None where the line does not say. Raises UsageError."""
    topic = str(document.get("topic") or document.get("queue") or "")
    died = died_at(headers, topic)
    is_null = properties.get("null_value") == "true"
    stored = from_millis(properties.get("timestamp"))
    keeps_time = died is not None and died.told_by.keeps_time
    original = from_millis(headers.get(died.told_by.timestamp)) if died else None
    return {
        "origin_kind": "topic" if died else None,
        "origin": died and died.topic,
        "origin_group": died and died.group,
        "message_id": coordinates(died),
        "queue_id": count_of(properties.get("partition")),
        "offset": integer(properties.get("offset"), 64),
        "keys": (properties["key"],) if properties.get("key") else (),
        "raw_properties": _block(headers, properties, is_null),
        "flags": VALUE_WAS_NULL if is_null else 0,
        "published_at": stored if keeps_time else original,
        "dead_at": None if keeps_time else stored,
    }


def _block(headers: Texts, properties: Texts, is_null: bool) -> bytes:
    try:
        key = bytes_of(properties["key"]) if "key" in properties else None
        listed = [(name, bytes_of(text)) for name, text in headers.items()]
    except ValueError as error:
        raise UsageError(f"a key or header is no base64: {error}") from error
    timestamp = integer(properties.get("timestamp"), 64)
    return encode(RawRecord(key, listed, -1 if timestamp is None else timestamp, is_null=is_null))
