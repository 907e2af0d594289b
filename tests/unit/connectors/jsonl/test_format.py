"""Lines of strangers: what no column can hold is null, what has the wrong type is refused in words."""

import json
from typing import Any

import pytest
from support.rows import each_row

from dlq.archive.schema import to_records, to_table
from dlq.connectors.jsonl.format import parse_line, record_of
from dlq.core.errors import UsageError
from dlq.core.keys import key_reader
from dlq.core.record import Record

HUGE = 99_999_999_999


def archived(kind: str, **fields: Any) -> Record:
    """The record of such a line as the archive gives it back."""
    document = parse_line(json.dumps({"broker_kind": kind, **fields}))
    record = record_of(document, "orders", "shop", "1", key_reader(None))
    return next(to_records(to_table([record])))


@each_row(("column", "line"), [
    ("attempts", {"kind": "rocketmq", "headers": {"reconsumeTimes": HUGE}}),
    ("flags", {"kind": "rocketmq", "headers": {"sysFlag": HUGE}}),
    ("queue_id", {"kind": "rocketmq", "headers": {"queueId": HUGE}}),
    ("published_at", {"kind": "rocketmq", "headers": {"bornTimestamp": 2**63 - 1}}),
    ("priority", {"kind": "activemq", "headers": {"priority": HUGE}}),
    ("published_at", {"kind": "activemq", "headers": {"timestamp": "9" * 15}}),
    ("dead_at", {"kind": "artemis", "headers": {"_AMQ_ACTUAL_EXPIRY": "9" * 23}}),
    ("priority", {"kind": "rabbitmq", "properties": {"priority": HUGE}}),
    ("attempts", {"kind": "rabbitmq", "headers": {"x-death": [{"reason": "rejected", "count": HUGE}]}}),
    ("attempts", {"kind": "rabbitmq", "headers": {"x-death": [{"reason": "rejected", "count": -1}]}}),
    ("attempts", {"kind": "rocketmq", "headers": {"reconsumeTimes": -3}}),
    ("queue_id", {"kind": "rocketmq", "headers": {"queueId": -1}}),
    ("priority", {"kind": "artemis", "headers": {"priority": -1}}),
    ("queue_id", {"kind": "kafka", "properties": {"partition": HUGE}}),
    ("offset", {"kind": "kafka", "properties": {"offset": 2**63}}),
    ("dead_at", {"kind": "kafka", "properties": {"timestamp": 2**63 - 1}}),
    ("attempts", {"kind": "rabbitmq", "record": {"attempts": -1}}),
    ("offset", {"kind": "rabbitmq", "record": {"offset": -1}}),
    ("published_at", {"kind": "rabbitmq", "published_at": float("nan")}),
    ("published_at", {"kind": "rabbitmq", "published_at": float("-inf")}),
    ("published_at", {"kind": "rabbitmq", "published_at": 1e300}),
    ("attempts", {"kind": "rabbitmq", "record": {"attempts": HUGE}}),
    ("offset", {"kind": "rabbitmq", "record": {"offset": 2**63}}),
    ("first_dead_at", {"kind": "rabbitmq", "record": {"first_dead_at": 1e17}}),
])  # fmt: skip
def test_what_no_column_can_hold_is_null(column: str, line: dict[str, Any]) -> None:
    record = archived(**line)
    assert getattr(record, column) is None
    assert [*record.headers] == [*line.get("headers", {})]


@each_row(("record", "reason"), [
    ({"offset": "x"}, "record.offset must be a whole number, not 'x'"),
    ({"offset": True}, "a whole number"),
    ({"record_id": 7}, "record.record_id must be text, not 7"),
    ({"record_id": ""}, "32 hex digits"),
    ({"record_id": "../../x"}, "32 hex digits"),
    ({"record_id": "A" * 32}, "32 hex digits"),
    ({"record_id": f"{'0' * 32}' or true --"}, "32 hex digits"),
    ({"broker_kind": "x"}, "unknown field 'record.broker_kind'"),
    ({"broker_node": 5}, "text"),
    ({"redelivered": 1}, "true or false"),
    ({"keys": ["a", 5]}, "a list"),
    ({"deaths": 5}, "a list"),
    ({"deaths": [5]}, "objects"),
    ({"deaths": [{"count": "x"}]}, "a whole number"),
    ({"deaths": [{"cuont": 1}]}, "did you mean 'count'"),
    ({"headers": []}, "an object"),
    ({"dead_at": "soon"}, "ISO 8601"),
    ({"raw_properties_base64": 5}, "base64"),
])  # fmt: skip
def test_a_column_of_the_wrong_type_is_refused_in_words(record: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        archived("rabbitmq", record=record)


def test_what_a_line_says_of_its_body_is_not_believed() -> None:
    known, lied = archived("rabbitmq"), archived("rabbitmq", record={"body_size": 7, "body_sha256": "x"})
    assert (lied.body_size, lied.body_sha256) == (known.body_size, known.body_sha256)


@each_row("kind", [["x"], {"a": 1}, None, 5])
def test_a_broker_kind_that_is_no_text_is_refused_in_words(kind: Any) -> None:
    with pytest.raises(UsageError, match="broker_kind must be one of"):
        parse_line(json.dumps({"broker_kind": kind}))


@each_row("body", [None, {"a": 1}, ["a"], 5, True])
def test_a_body_that_is_no_text_is_refused_in_words(body: Any) -> None:
    with pytest.raises(UsageError, match="body_text must be text, not"):
        archived("rabbitmq", body_text=body)


def test_lone_surrogates_are_escaped() -> None:
    odd, shown = "a\ud800b", r"a\ud800b"
    record = archived(
        "rabbitmq", queue=odd, message_id=odd, failure_text=odd, properties={"correlation_id": odd},
        headers={odd: odd, "x-death": [{"reason": odd, "queue": odd, "routing-keys": [odd]}]},
    )  # fmt: skip
    assert (record.dead_letter_queue, record.message_id, record.failure_text) == (shown, shown, shown)
    assert (record.headers[shown], record.correlation_id) == (shown, shown)
    assert (record.deaths[0].reason, record.deaths[0].routing_keys) == (shown, (shown,))


def test_odd_numbers_and_texts_are_kept_as_far_as_they_mean_something() -> None:
    record = archived("rabbitmq", headers={"x-death": [{"reason": "expired", "queue": "q", "count": -2}]})
    assert record.deaths[0].count is None
    assert '"count": -2' in record.headers["x-death"]
    assert archived("rocketmq", headers={"sysFlag": -1}).flags == -1  # they are bits
    assert archived("rabbitmq", body_text="{}", record={"body_size": 2**63}).body_size == 2  # measured
    assert archived("rabbitmq", message_id="\U0001f600").message_id == "\U0001f600"


def test_a_business_key_in_a_body_may_hold_a_lone_surrogate() -> None:
    read = key_reader("json:$.id")
    assert read(None, {}, {}, rb'{"id": "\ud800"}') == r"\ud800"
    assert read(None, {}, {}, rb'{"id": ["\ud800"]}') == r'["\ud800"]'


@each_row("line", [
    '{"broker_kind": "rabbitmq", "body_text": "a", "body_text": "b"}',
    '{"broker_kind": "rabbitmq", "headers": {"x": "1", "x": "2"}}',
    '{"broker_kind": "rabbitmq", "headers": {"x": [{"\\u0061": 1, "a": 2}]}}',
])  # fmt: skip
def test_a_key_that_stands_twice_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match=r"^its key '\w+' stands there twice; leave one of them$"):
        parse_line(line)
