"""Letters of Kafka as lines of JSONL: what a foreign line tells, and what an export brings back."""

import base64
import json
from typing import Any

import pytest

from dlq.connectors.jsonl.format import parse_line, record_of
from dlq.connectors.kafka.records.raw import VALUE_WAS_NULL, RawRecord, decode
from dlq.core.errors import UsageError
from dlq.core.record import Record

SPRING = {
    "kafka_dlt-original-topic": "orders",
    "kafka_dlt-original-partition": 2,
    "kafka_dlt-original-offset": 41,
    "kafka_dlt-original-timestamp": 1_600_000_000_000,
    "kafka_dlt-original-consumer-group": "billing",
}
CONNECT = {"__connect.errors.topic": "orders", "__connect.errors.stage": "TASK_PUT"}
STORED = 1_700_000_000_000


def imported(headers: dict[str, Any], properties: dict[str, Any] | None = None, **more: Any) -> Record:
    line = {"broker_kind": "kafka", "topic": "orders-dlt", "headers": headers, "properties": properties or {}}
    document = parse_line(json.dumps({**line, **more}))
    return record_of(document, "orders", "shop", "1", lambda message_id, _h, _p, _b: message_id)


def test_a_line_tells_where_its_letter_died_and_when() -> None:
    properties = {"partition": 1, "offset": 7, "timestamp": STORED, "key": "k1"}
    letter = imported(SPRING, properties, body_text="paid")
    assert letter.dead_letter_queue == "orders-dlt"
    assert (letter.origin_kind, letter.origin, letter.origin_group) == ("topic", "orders", "billing")
    assert (letter.queue_id, letter.offset, letter.keys) == (1, 7, ("k1",))
    assert letter.message_id == "orders-2@41"
    assert (letter.published_at, letter.dead_at) == (1_600_000_000_000_000, STORED * 1000)
    assert decode(letter.raw_properties or b"") == RawRecord(
        b"k1", [(name, str(value).encode()) for name, value in SPRING.items()], STORED
    )


def test_the_time_of_a_letter_of_connect_is_that_of_its_record() -> None:
    letter = imported(CONNECT, {"timestamp": STORED})
    assert (letter.published_at, letter.dead_at) == (STORED * 1000, None)


def test_a_line_without_anything_is_a_letter_of_which_nothing_is_known() -> None:
    letter = imported({})
    known = (letter.origin, letter.origin_group, letter.message_id, letter.offset, letter.published_at)
    assert known == (None, None, None, None, None)


def test_an_empty_body_is_a_tombstone_only_where_the_line_says_so() -> None:
    empty, tombstone = imported({}, {"key": "k1"}), imported({}, {"key": "k1", "null_value": True})
    assert [decode(one.raw_properties or b"").is_null for one in (empty, tombstone)] == [False, True]
    assert [one.flags for one in (empty, tombstone)] == [0, VALUE_WAS_NULL]


def test_bytes_are_read_from_base64_and_what_is_none_is_said_in_words() -> None:
    told = f"base64:{base64.b64encode(bytes([255, 0])).decode()}"
    letter = imported({"binary": told}, {"key": told})
    raw = decode(letter.raw_properties or b"")
    assert (raw.key, list(raw.headers)) == (b"\xff\0", [("binary", b"\xff\0")])
    with pytest.raises(UsageError, match="no base64"):
        imported({"binary": "base64:?"})
