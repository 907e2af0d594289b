"""What a dead letter of Kafka looks like on its way back."""

import time
from typing import Any

import pytest
from support.archives import letter
from support.rows import each_row
from support.waiting import SOON

from dlq.connectors.base import Outgoing, Target
from dlq.connectors.kafka.look.cluster import Cluster
from dlq.connectors.kafka.look.times import times_of, why_gone, why_not_kept
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.plugin.description import KafkaBroker
from dlq.connectors.kafka.records.messages import UNRESOLVED
from dlq.connectors.kafka.records.raw import VALUE_WAS_NULL, Headers, RawRecord, encode
from dlq.connectors.kafka.republish import Message, Told, message_of, preview, retry_topics, target_of
from dlq.core.errors import BrokerError, UsageError
from dlq.core.record import Record

ORDERS = Target("topic", "orders")
OWN: Headers = [("traceparent", b"00-1"), ("a", b"1"), ("a", None)]
LEFT: Headers = [
    ("kafka_dlt-original-topic", b"orders"), ("__dlq.errors.topic", b"orders"), ("dlq_replay_id", b"old"),
    ("retry_topic-attempts", b"\3"),
]  # fmt: skip
SENT = {"dlq_replay_id": "new"}


def dead(raw: RawRecord | None = None, **fields: Any) -> Record:
    block = encode(raw or RawRecord(b"k", [*OWN, *LEFT]))
    found: dict[str, Any] = {"broker_kind": "kafka", "raw_properties": block, "origin": "orders", **fields}
    body = found.setdefault("body", b"body")
    return letter(1, **{"body_size": len(body), "dead_letter_queue": "orders-dlt", **found})


def sent(record: Record, target: Target = ORDERS, keep_headers: bool = False) -> Message:
    return message_of(Outgoing(0, record, target, SENT, keep_headers))


def test_what_the_failure_left_stays_behind_and_the_rest_goes_to_the_byte() -> None:
    message = sent(dead())
    assert (message.topic, message.key, message.value) == ("orders", b"k", b"body")
    assert message.headers == [*OWN, ("dlq_replay_id", b"new")]


def test_headers_that_are_kept_are_all_but_the_brokers_and_ours() -> None:
    names = [name for name, _ in sent(dead(), keep_headers=True).headers]
    assert names == [
        "traceparent", "a", "a", "kafka_dlt-original-topic", "retry_topic-attempts", "dlq_replay_id"
    ]  # fmt: skip


def test_of_a_pointer_the_original_is_sent() -> None:
    pointer = RawRecord(None, LEFT, is_null=True, original=RawRecord(b"k", OWN, 5))
    message = sent(dead(pointer, body=b"original"))
    assert (message.key, message.value) == (b"k", b"original")
    assert message.headers == [*OWN, ("dlq_replay_id", b"new")]


def test_a_tombstone_stays_one_unless_an_edit_gives_it_a_value() -> None:
    assert sent(dead(flags=VALUE_WAS_NULL, body=b"")).value is None
    assert sent(dead(flags=VALUE_WAS_NULL, body=b"edited")).value == b"edited"
    assert sent(dead(flags=0, body=b"")).value == b""


DIED: Headers = [("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", b"\0\0\0\7")]
RETRY = Target("topic", "orders-retry-0")
POINTED: Headers = [("__dlq.errors.topic", b"orders"), ("__dlq.errors.partition", b"8")]


@each_row(("raw", "target", "partition"), [
    (RawRecord(b"k", DIED), ORDERS, 7),
    (RawRecord(b"k", DIED), RETRY, None),
    (RawRecord(b"k", [*OWN, DIED[0]]), ORDERS, None),
    (RawRecord(b"k", [DIED[0], (DIED[1][0], b"seven")]), ORDERS, None),
    (RawRecord(None, POINTED, is_null=True, original=RawRecord(b"k", OWN)), ORDERS, 8),
    (RawRecord(None, POINTED, is_null=True, original=RawRecord(b"k", DIED)), ORDERS, 8),
])  # fmt: skip
def test_it_goes_to_the_partition_that_it_died_in(
    raw: RawRecord, target: Target, partition: int | None
) -> None:
    assert sent(dead(raw), target).partition == partition


def test_without_its_block_it_is_made_of_what_is_known() -> None:
    message = sent(dead(raw_properties=None, headers={"a": "1", "b": "base64:/w=="}, properties={"key": "k"}))
    assert (message.key, message.headers[:2]) == (b"k", [("a", b"1"), ("b", b"\xff")])


def test_a_target_is_a_topic() -> None:
    assert target_of(dead(), "origin") == ORDERS
    assert target_of(dead(origin=None), "origin") is None
    assert target_of(dead(origin=None), "topic:orders-retry-0") == RETRY
    for to in ("group", "queue:orders", "topic:", "topic:__consumer_offsets"):
        with pytest.raises(UsageError):
            target_of(dead(), to)


NULL = RawRecord(b"k", [], is_null=True)
GONE = {"pointer": "gone: x"}
POINTER = RawRecord(None, [*POINTED, ("__dlq.errors.offset", b"7")], is_null=True)


@each_row(("record", "is_compacted", "problem", "to_name"), [
    (dead(), False, None, set()),
    (dead(), True, None, {"target"}),
    (dead(NULL, flags=VALUE_WAS_NULL, body=b""), False, None, {"letter"}),
    (dead(NULL, flags=VALUE_WAS_NULL, body=b""), True, None, {"letter", "target"}),
    # Null without a key deletes nothing.
    (dead(RawRecord(None, []), flags=VALUE_WAS_NULL, body=b""), False, None, set()),
    (dead(RawRecord(None, [])), True, "without a key", set()),
    (dead(flags=UNRESOLVED | VALUE_WAS_NULL, body=b"", properties=GONE), False, "gone: x", set()),
    # It was read with resolve = false, or imported, so nobody looked for what it points to.
    (dead(POINTER, flags=VALUE_WAS_NULL, body=b""), False, "its original was not had", set()),
    (dead(POINTER, flags=VALUE_WAS_NULL, body=b"edited"), False, None, set()),
    (dead(POINTER._replace(is_null=False), flags=0, body=b""), False, None, set()),
    (dead(raw_properties=b"\1\0"), False, "no block", set()),
])  # fmt: skip
def test_what_would_harm_is_left_out_or_asked_for_by_name(
    record: Record, is_compacted: bool, problem: str | None, to_name: set[str]
) -> None:
    policy = "compact,delete" if is_compacted else "delete"
    found = preview(Outgoing(0, record, ORDERS, {}, False), Told({"cleanup.policy": policy}))
    assert set(found.unless_named) == to_name
    assert (problem or "") in (found.problem or "")
    assert (found.problem is None) == (problem is None)


def test_retry_topics_are_known_by_their_names_the_first_retry_first() -> None:
    names = ["a-retry-10000", "a-retry-2000", "b.c-retry", "a-retry-dlt", "a-retry-x", "-retry-0", "retry-0"]
    assert retry_topics(names) == {"a": ["a-retry-2000", "a-retry-10000"], "b.c": ["b.c-retry"]}


DAY = 86_400_000
WINDOW = {"message.timestamp.before.max.ms": str(10 * DAY), "message.timestamp.after.max.ms": str(DAY)}
FOREVER = {**WINDOW, "retention.ms": "-1"}
RETRIES = ["orders-retry-0", "orders-retry-1"]
OFFER = (
    "every group of orders gets it again; --to topic:orders-retry-0 or topic:orders-retry-1 "
    "reaches the failed one alone"
)


@each_row(("header", "text", "retries", "is_offered"), [
    ("kafka_original-topic", "orders", RETRIES, True),
    ("kafka_original-topic", "orders", [], False),
    # Nothing says that the group that failed has retry topics.
    ("kafka_dlt-original-topic", "orders", RETRIES, False),
    ("__dlq.errors.topic", "orders", RETRIES, False),
    ("traceparent", "00-1", RETRIES, False),
    # It is sent elsewhere than where it died.
    ("kafka_original-topic", "bills", RETRIES, False),
])  # fmt: skip
def test_a_letter_whose_group_has_retry_topics_is_offered_the_way_to_that_group_alone(
    header: str, text: str, retries: list[str], is_offered: bool
) -> None:
    yesterday = int((time.time() * 1000 - DAY) * 1000)
    letter = Outgoing(0, dead(headers={header: text}, published_at=yesterday), ORDERS, {}, False)
    assert preview(letter, Told(FOREVER, retries)).warnings == ([OFFER] if is_offered else [])


FOUR = {**WINDOW, "retention.ms": str(4 * DAY)}
OLD = {"retention.ms": "-1", "message.timestamp.difference.max.ms": str(DAY)}
"""Of brokers before 4.0."""


@each_row(("settings", "days", "why"), [
    (FOREVER, 9, ""),
    (FOREVER, 11, "message.timestamp.before.max.ms"),
    (FOREVER, -0.4, ""),
    (FOREVER, -0.6, "message.timestamp.after.max.ms"),
    (FOREVER, None, "is not known"),
    ({**FOREVER, "message.timestamp.type": "LogAppendTime"}, 1, "message.timestamp.type"),
    (FOUR, 1.9, ""),
    (FOUR, 2, "retention.ms"),
    ({**FOUR, "cleanup.policy": "compact"}, 9, ""),
    ({**FOUR, "cleanup.policy": "compact,delete"}, 9, "retention.ms"),
    (OLD, 0.9, ""),
    (OLD, 1, "before.max.ms"),
    (WINDOW, 0, "DESCRIBE_CONFIGS"),
    ({"retention.ms": "-1"}, 0, "DESCRIBE_CONFIGS"),
    ({}, 0, "DESCRIBE_CONFIGS"),
])  # fmt: skip
def test_a_letter_keeps_its_time_where_the_topic_takes_it_and_keeps_it_for_as_long_again(
    settings: dict[str, str], days: float | None, why: str
) -> None:
    now = 1_700_000_000_000
    published = None if days is None else int(now - days * DAY)
    found = why_not_kept("orders", times_of(settings), published, now)
    assert (found is None) == (why == "")
    assert why in (found or "")


@each_row(("settings", "is_gone"), [
    ({"retention.ms": "59999"}, True), ({"retention.ms": "60000"}, False), ({"retention.ms": "0"}, True),
    ({"retention.ms": "1000", "cleanup.policy": "compact"}, False), ({}, False),
])  # fmt: skip
def test_what_comes_to_a_topic_that_keeps_hardly_anything_is_gone(
    settings: dict[str, str], is_gone: bool
) -> None:
    assert (why_gone("orders", times_of(settings)) is not None) == is_gone


def test_a_cluster_that_did_not_answer_once_is_asked_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = KafkaConnector(KafkaBroker("there", "kafka", "kafka://127.0.0.1:1", timeout="1s"))
    answers: list[dict[str, str] | BrokerError] = [BrokerError("busy"), {"cleanup.policy": "delete"}]

    def tell(_cluster: Cluster, _topic: str) -> dict[str, str]:
        if isinstance(answer := answers.pop(0), BrokerError):
            raise answer
        return answer

    monkeypatch.setattr(Cluster, "configuration", tell)
    monkeypatch.setattr(Cluster, "names", lambda _cluster: [])
    letter = Outgoing(0, dead(), ORDERS, {})
    assert there.preview(letter).unless_named
    assert there.preview(letter).unless_named
    asked = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: asked + 60)
    assert (dict(there.preview(letter).unless_named), answers) == ({}, [])


def test_a_cluster_that_does_not_answer_tells_of_no_target_and_is_asked_once() -> None:
    gone = KafkaConnector(KafkaBroker("gone", "kafka", "kafka://127.0.0.1:1", timeout="1s"))
    began = time.monotonic()
    for topic in map(str, range(20)):
        [why] = gone.preview(Outgoing(0, dead(), Target("topic", topic), {})).unless_named.values()
        assert "it is not known whether" in why
    assert time.monotonic() - began < SOON
