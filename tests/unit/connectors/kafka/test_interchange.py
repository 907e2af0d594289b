"""What a line of strangers tells of a letter of Kafka, beside what the golden lines hold."""

import base64
from typing import Any

import pytest
from support.analyzers.letters import imported

from dlq.connectors.kafka.records.raw import VALUE_WAS_NULL, decode
from dlq.core.errors import UsageError
from dlq.core.record import Record

CONNECT = {"__connect.errors.topic": "orders", "__connect.errors.stage": "TASK_PUT"}
STORED = 1_700_000_000_000


def letter(headers: dict[str, Any], properties: dict[str, Any] | None = None) -> Record:
    return imported({"broker_kind": "kafka", "headers": headers, "properties": properties or {}})


def test_the_time_of_a_letter_of_connect_is_that_of_its_record() -> None:
    one = letter(CONNECT, {"timestamp": STORED})
    assert (one.published_at, one.dead_at) == (STORED * 1000, None)


def test_an_empty_body_is_a_tombstone_only_where_the_line_says_so() -> None:
    empty, tombstone = letter({}, {"key": "k1"}), letter({}, {"key": "k1", "null_value": True})
    assert [decode(one.raw_properties or b"").is_null for one in (empty, tombstone)] == [False, True]
    assert [one.flags for one in (empty, tombstone)] == [0, VALUE_WAS_NULL]


def test_bytes_are_read_from_base64_and_what_is_none_is_said_in_words() -> None:
    told = f"base64:{base64.b64encode(bytes([255, 0])).decode()}"
    one = letter({"binary": told}, {"key": told})
    raw = decode(one.raw_properties or b"")
    assert (raw.key, list(raw.headers)) == (b"\xff\0", [("binary", b"\xff\0")])
    with pytest.raises(UsageError, match="no base64"):
        letter({"binary": "base64:?"})
