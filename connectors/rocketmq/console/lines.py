"""From a line of JSONL that no export wrote to what `records` makes of a stored message."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.jsonl.values import Texts, count_of, from_millis, integer
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, origin_of


def columns(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    """Return the columns of a record; None where the line does not say."""
    topic = str(document.get("topic") or document.get("queue") or "")
    is_letter = topic.startswith(DEAD_LETTERS)
    group = topic.removeprefix(DEAD_LETTERS)
    retry = properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC")
    origin = origin_of(retry, group) if is_letter else properties.get("REAL_TOPIC")
    return {
        "origin_kind": "topic" if origin else None,
        "origin": origin,
        "origin_group": group if is_letter else properties.get("PGROUP"),
        "message_id": properties.get("UNIQ_KEY") or headers.get("msgId"),
        "physical_id": headers.get("msgId"),
        "queue_id": count_of(headers.get("queueId")),
        "keys": tuple((properties.get("KEYS") or "").split()),
        "attempts": count_of(headers.get("reconsumeTimes")),
        "flags": integer(headers.get("sysFlag")),
        "published_at": from_millis(headers.get("bornTimestamp")),
        "dead_at": from_millis(headers.get("storeTimestamp")),
    }
