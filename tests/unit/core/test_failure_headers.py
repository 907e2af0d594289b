"""What a failure leaves on a letter: one table for rules, which read it, and replays, which take it away."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pika
import pytest
from corpus.report import entries, record
from hypothesis import given
from hypothesis import strategies as st
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.analyzers.rules import OF_ANY_BROKER, Facts, judge
from dlq.connectors.activemq import republish as activemq
from dlq.connectors.base import Outgoing, Target
from dlq.connectors.kafka import republish as kafka
from dlq.connectors.kafka.records.header_texts import texts_of
from dlq.connectors.rabbitmq import republish as rabbitmq
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rocketmq import republish as rocketmq
from dlq.core.headers.failure_headers import (
    ask_values,
    attempts_of_retries,
    by_hand,
    fix_text,
    mark_of,
    restart,
    strip_failure,
    taken_away,
)
from dlq.core.headers.frameworks import FRAMEWORKS, Framework
from dlq.core.record import Death, Record

FACTS = Facts()
SENT = {"dlq_replay_id": "ab", "dlq_replay_lap": "1", "dlq_replay_of": "r"}


def outgoing(letter: Record, target: Target, keep: Any) -> Outgoing:
    return Outgoing(1, letter, target, SENT, keep)


def by_rabbitmq(letter: Record, keep: Any) -> Mapping[str, str]:
    return table.decode(rabbitmq.block_to_send(letter, SENT, keep)).headers


def by_kafka(letter: Record, keep: Any) -> Mapping[str, str]:
    return texts_of(tuple(kafka.message_of(outgoing(letter, Target("topic", "o"), keep)).headers))


def by_rocketmq(letter: Record, keep: Any) -> Mapping[str, str]:
    given = letter._replace(properties={**letter.properties, **letter.headers}, headers={})
    return rocketmq.message_of(outgoing(given, Target("topic", "o"), keep)).properties


def by_activemq(letter: Record, keep: Any) -> Mapping[str, str]:
    return activemq.content(letter, Target("queue", "o"), SENT, keep)[0]


BROKERS: Mapping[str, Callable[[Record, Any], Mapping[str, str]]] = {
    "rabbitmq": by_rabbitmq, "kafka": by_kafka, "rocketmq": by_rocketmq, "activemq": by_activemq,
    "artemis": by_activemq,
}  # fmt: skip
IN_THE_BODY = ("easynetq", "dramatiq", "dramatiq-reject", "sneakers", "sneakers-reject")
"""Their evidence is no header."""
OF_FRAMEWORKS = {rule.name for rule in OF_ANY_BROKER}
PARKED = [
    record(entry)
    for entry in entries()
    if (verdict := judge(record(entry), FACTS)).rule in OF_FRAMEWORKS
    or verdict.mechanism in ("framework", "deserialization")
    if verdict.rule not in IN_THE_BODY
]


def dead_of_a_ttl(kind: str, headers: Mapping[str, str]) -> Record:
    """What the same message is when it has gone back with these headers, and expired."""
    if kind == "rocketmq":
        return imported({"broker_kind": kind, "queue": "%DLQ%g", "properties": dict(headers)})
    marks: dict[str, Any] = {
        "rabbitmq": {"x-death": [{"reason": "expired", "queue": "orders", "count": 1}]},
        "activemq": {"dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:5"},
        "artemis": {"_AMQ_ORIG_ADDRESS": "o", "_AMQ_ORIG_QUEUE": "o", "_AMQ_ACTUAL_EXPIRY": "5"},
        "kafka": {},
    }
    named = {"topic": "orders.dlt"} if kind == "kafka" else {"queue": "dead"}
    return imported({"broker_kind": kind, **named, "headers": {**headers, **marks[kind]}})


AFTER = {
    "rabbitmq": "expired", "activemq": "expired", "artemis": "expired", "kafka": "unknown",
    "rocketmq": "unknown",
}  # fmt: skip


@each_row("kind", BROKERS)
@each_row("letter", PARKED)
def test_a_letter_that_was_replayed_and_dies_of_a_ttl_is_classified_by_that(
    letter: Record, kind: str
) -> None:
    own = {name: text for name, text in letter.headers.items() if not name.startswith("x-death")}
    given = letter._replace(broker_kind=kind, headers=own, raw_properties=None, deaths=(), origin="o")
    again = judge(dead_of_a_ttl(kind, BROKERS[kind](given, False)), FACTS)
    assert (again.cause, again.exception_class, again.exception_message) == (AFTER[kind], None, None)


@each_row("kind", BROKERS)
def test_keeping_headers_keeps_all_or_those_that_are_named(kind: str) -> None:
    headers = {"x-exception-message": "boom", "x-last-error": "bang", "tenant": "7"}
    letter = Record("r", "s", "b", kind, "dead", headers=headers, origin="o")
    sent = [BROKERS[kind](letter, keep) for keep in (False, True, ("x-last-*",))]
    kept = [{name for name in headers if name in one} for one in sent]
    assert kept == [{"tenant"}, set(headers), {"tenant", "x-last-error"}]


@each_row("kind", BROKERS)
def test_what_stands_beside_an_error_goes_with_it_and_without_one_stays(kind: str) -> None:
    beside = {"error-code": "5", "failedAt": "noon", "x-first-failure-time": "ten", "exception_id": "7"}
    told = {"error-message": "boom", "original-queue": "o"}
    own = {"tenant": "1", "errand": "2", "causes-pain": "3", "x-failover": "4"}
    whole, alone = (
        BROKERS[kind](Record("r", "s", "b", kind, "dead", headers=headers, origin="o"), False)
        for headers in ({**told, **beside, **own}, {"error-code": "5", **own})
    )
    assert {name: whole[name] for name in (*told, *beside, *own) if name in whole} == own
    assert {name: alone[name] for name in ("error-code", *own)} == {"error-code": "5", **own}


COUNTERS = {
    "Celery": ({"task": "shop.pay", "id": "1", "retries": "3"}, "retries", "0"),
    "Moleculer": ({"x-redelivered-count": "2"}, "x-redelivered-count", "0"),
    "Brighter": ({"HandledCount": "4", "MessageType": "MT_EVENT"}, "HandledCount", "0"),
    "Laravel": ({"laravel": '{"attempts":3,"id":"x"}'}, "laravel", '{"attempts":0,"id":"x"}'),
}


@each_row("kind", BROKERS)
@each_row(("headers", "name", "after"), COUNTERS.values(), ids=list(COUNTERS))
def test_a_counter_is_set_back(kind: str, headers: dict[str, str], name: str, after: str) -> None:
    letter = Record("r", "s", "b", kind, "dead", headers=headers, origin="o")
    sent = BROKERS[kind](letter, False)
    assert {key: sent[key] for key in headers} == {**headers, name: after}
    assert BROKERS[kind](letter, True)[name] == headers[name]


def rabbit(headers: dict[str, Any]) -> Record:
    block = b"".join(pika.BasicProperties(headers=headers).encode())
    return Record("r", "s", "b", "rabbitmq", "dead", raw_properties=block)


def test_a_number_that_is_set_back_stays_a_number_and_one_in_the_body_is_said() -> None:
    letter = rabbit({"task": "shop.pay", "id": "1", "retries": 3, "tenant": 42})
    assert b"\x07retriesI\x00\x00\x00\x00" in rabbitmq.block_to_send(letter, SENT, False)
    shown = rabbitmq.preview(Outgoing(0, letter, Target("queue", "o"), SENT))
    assert shown.stripped == ["retries (set back to 0)"]
    letter = rabbit({})._replace(dead_letter_queue="orders.XQ", body=b"{}")
    found = rabbitmq.preview(Outgoing(0, letter, Target("queue", "orders"), SENT))
    assert any("counts its retries in the body" in warning for warning in found.warnings)


RASCAL = {
    "originalQueue": "orders",
    "encryption": {"name": "v1", "iv": "00"},
    "recovery": {"orders": {"republished": 3, "immediateNack": True}},
    "error": {"message": "boom", "code": "E1"},
    "redeliveries": 4,
}


def test_a_container_is_mended_inside() -> None:
    letter = rabbit({"rascal": RASCAL})
    sent = json.loads(by_rabbitmq(letter, False)["rascal"])
    assert sent == {"originalQueue": "orders", "encryption": RASCAL["encryption"], "redeliveries": 0}
    [told] = rabbitmq.preview(Outgoing(0, letter, Target("queue", "o"), SENT)).stripped
    assert told.startswith("rascal (without ")
    letter = rabbit({"rascal": RASCAL, "x-death": [{"reason": "rejected"}]})
    kept = json.loads(by_rabbitmq(letter, True)["rascal"])  # but for what it compares with x-death
    assert kept == {**RASCAL, "recovery": {"orders": {"republished": 3}}}


BUSINESS = [
    {"errorMessage": "what the customer complained of"},
    {"cause": "flood"},
    {"source": "web", "origin": "DE", "reason": "return"},
    {"retries": "3"},
    {"attempts": "2", "tenant": "7"},
    {"sourceTopic": "sports", "destination-type": "ANYCAST"},
    {"description": "error of the scale", "type": "complaint"},
    {"processing": "3", "processingAttempt": "2"},
    {"lastError": "", "originalQueue": "orders"},
]


@each_row("headers", BUSINESS)
def test_a_lone_business_property_is_no_failure(headers: dict[str, str]) -> None:
    assert by_hand(headers) is None
    assert restart(headers).gone == frozenset()
    for kind in BROKERS:
        letter = Record("r", "s", "b", kind, "dead", headers=headers)
        assert judge(letter, FACTS).cause == "unknown"


@each_row(("written", "read"), [
    (b"3", 3), (b"\0\0\0\3", 3), (b"\0\0\0\0\0\0\0\3", 3), (b"\xff\xff\xff\xff", None), (b"\x00\x03", None),
])  # fmt: skip
def test_a_count_on_kafka_is_text_or_the_bytes_of_an_int(written: bytes, read: int | None) -> None:
    found = by_hand(texts_of([("exceptionMessage", b"stale"), ("attempts", written)]))
    assert found is not None
    assert (found.counted.attempts if found.counted else None) == read


RETRIES = [
    "x-retry-count", "retryCount", "retry_count", "RETRY_COUNT", "x-retries", "retries", "x-retrycount",
    "retrycount", "x_HYPHEN_retry_HYPHEN_count", "dlqRetryCount", "retryAttempt", "redeliveryCount",
    "redelivered-count",
]  # fmt: skip
ATTEMPTS = [
    "x-attempts", "attempt", "attemptCount", "deliveryCount", "x-delivery-attempts", "processing_attempt",
]  # fmt: skip


@each_row(("name", "attempts"), [*((name, 3) for name in RETRIES), *((name, 2) for name in ATTEMPTS)])
@each_row("kind", BROKERS)
def test_retries_are_attempts_beyond_the_first_in_any_spelling(kind: str, name: str, attempts: int) -> None:
    headers = {"errorMessage": "no stock", "originalQueue": "orders", name: "2"}
    maps = {"properties": headers} if kind == "rocketmq" else {"headers": headers}
    assert judge(Record("r", "s", "b", kind, "dead", **maps), FACTS).attempts == attempts


def test_of_several_counts_the_highest_is_told() -> None:
    found = by_hand({"x-error": "no stock", "attempts": "3", "retry-count": "2", "x-retries": "many"})
    assert found is not None
    assert found.counted == (3, 3, "attempts")


@pytest.mark.parametrize(
    ("name", "attempts"), [("retryCount", 3), ("x-retries", 3), ("retries", 1), ("attempts", 1)]
)
def test_a_reject_takes_only_what_is_surely_a_count_of_retries(name: str, attempts: int) -> None:
    death = Death("rejected", "orders", count=1)
    verdict = judge(Record("r", "s", "b", "rabbitmq", "dead", headers={name: "2"}, deaths=(death,)), FACTS)
    assert (verdict.cause, verdict.attempts) == ("poison_ack", attempts)


HANDS = [
    {"errorMessage": "no stock", "originalQueue": "orders"},
    {"exception_type": "com.shop.NoStock", "exception_traceback": "Traceback (most recent call last):"},
    {"dead-letter-reason": "no stock"},
    {"dlq_reason": "no stock", "dlq_origin_topic": "orders"},
    {"failureCause": "no stock", "failureReason": "x"},
    {"x_HYPHEN_exception_HYPHEN_message": "no stock"},
    {"ERROR_CLASS": "NoStockException"},
    {"dlqFailureReason": "no stock"},
    {"error-message": "no stock", "retry_count": "3"},
    {"FailedBecause": "no stock", "originalAddress": "orders"},
    {"x-error": "no stock", "x-processing-attempt": "2"},
]


@each_row("headers", HANDS)
@each_row("kind", BROKERS)
def test_what_hands_write_in_any_spelling_is_read(kind: str, headers: dict[str, str]) -> None:
    maps = {"properties": headers} if kind == "rocketmq" else {"headers": headers}
    verdict = judge(Record("r", "s", "b", kind, "dead", **maps), FACTS)
    assert verdict.cause == "application_error"
    assert any(name in (verdict.evidence or "") for name in (*headers, *map(_plain, headers)))
    assert not BROKERS[kind](
        Record("r", "s", "b", kind, "dead", headers=headers, origin="o"), False
    ).keys() & set(headers)


def _plain(name: str) -> str:
    return name.replace("_HYPHEN_", "-")


NAMES = (
    "x-original-exchange", "originalQueue", "errorMessage", "error", "x-error", "failedAt", "error-code",
    "stacktrace", "retryCount", "x-retry-count", "attempts", "death-reason", "death-count", "processing",
    "task", "id", "retries", "rascal", "laravel", "asyncRetry", "trace", "x-death", "reason", "dlq-reason",
)  # fmt: skip
VALUES = ("", " ", "0", "2", "x", "java.lang.Error: x", "rejected", "base64:AAAAAQ==", '{"attempts":3}')


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=6))
def test_a_replay_takes_away_what_a_hand_wrote_and_nothing_where_none_did(headers: dict[str, str]) -> None:
    """It asks by_hand's question in another way, which costs less."""
    hand, taken = by_hand(headers), restart(headers)
    if hand is not None:
        assert {*hand.names} <= taken.gone | taken.fixed.keys()
    else:
        nobodys = restart(dict.fromkeys(headers, ""))
        retries = {name for name in headers if (attempts_of_retries({name: headers[name]}) or 1) > 1}
        read = retries if "x-death" in headers else set()
        assert taken == nobodys._replace(gone=nobodys.gone | read)


COUNTED = [
    (name, beside)
    for name in ("retryCount", "dlq.retry.count", "x-retries", "x-redelivery-count", "redelivery_count")
    for beside in ("x-death", "x-opt-deaths", "x-last-death-reason", "x-first-death-reason", "originalTopic")
]


@each_row(
    ("name", "beside"), [*COUNTED, ("dlq.attempts", "dlq.original.topic"), ("attempts", "originalTopic")]
)
def test_a_count_does_not_go_out_with_a_letter_that_died(name: str, beside: str) -> None:
    """Its consumer would give up at the first failure; beside a topic it may be live, and proves no death."""
    assert name in restart({name: "3", beside: "rejected"}).gone
    assert (
        name not in restart({name: "3", "tenant": "7"}).gone | restart({name: "0", beside: "rejected"}).gone
    )
    assert name not in restart({name: "3", beside: "rejected"}, [name]).gone


DIED: Mapping[str, dict[str, str]] = {
    "rabbitmq": {"x-first-death-reason": "rejected"},
    "activemq": {"original-destination": "/queue/orders"},
    "artemis": {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders"},
    "rocketmq": {"RETRY_TOPIC": "orders"},
}


@each_row("kind", DIED)
def test_a_count_of_retries_is_taken_from_what_its_broker_says_that_died(kind: str) -> None:
    own = {"retryCount": "3", "tenant": "7"}
    died, lives = (
        BROKERS[kind](Record("r", "s", "b", kind, "dead", headers={**own, **marks}, origin="o"), False)
        for marks in (DIED[kind], {})
    )
    assert (died["tenant"], "retryCount" in died, "retryCount" in lives) == ("7", False, True)


def test_a_business_count_beside_a_death_is_kept() -> None:
    assert restart({"attempts": "3", "retries": "2", "x-death": "[]"}).gone == frozenset()


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=6), st.booleans())
def test_only_values_that_may_tell_a_failure_decide(headers: dict[str, str], keep: bool) -> None:
    asked: dict[str, str] = {}
    ask_values(tuple(headers), lambda name: asked.setdefault(name, headers[name]), keep)
    assert asked.keys() == (set() if keep else {name for name in headers if mark_of(name)})
    assert restart({**dict.fromkeys(headers, ""), **asked}, keep) == restart(headers, keep)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=6),
    st.sampled_from([False, True, ("x-*", "error")]),
    st.sets(st.sampled_from(NAMES)),
)
def test_what_names_alone_decide_is_what_a_walk_through_the_headers_finds(
    headers: dict[str, str], keep: Any, others: set[str]
) -> None:
    what = restart(headers, keep)
    walked = {
        name: fix_text(value, what.fixed[name]) if name in what.fixed else value
        for name, value in headers.items()
        if name not in what.gone
    }
    more = {**dict.fromkeys(others - headers.keys(), "1"), **headers}
    for _ in range(2):  # the second is known by its names
        assert strip_failure(headers, keep) == (walked, taken_away(headers, what))
        assert strip_failure(more, keep, tuple(headers)) == (walked, taken_away(headers, what))


@each_row("framework", FRAMEWORKS)
def test_whatever_a_row_reads_of_a_failure_does_not_go_out_again(framework: Framework) -> None:
    fields = (framework.classes, framework.messages, framework.stacks, framework.attempts, framework.origin)
    names = {*framework.evidence, *(name for field in fields for name in field.names)}
    taken = restart(dict.fromkeys(names, "1"))
    assert names <= taken.gone | taken.fixed.keys(), framework.rule
