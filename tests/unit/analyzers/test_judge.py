"""`judge` never fails: not on letters that no rule was made for, and not on a rule that has a fault itself."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.analyzers.letters import died, record

from dlq.analyzers import rules
from dlq.analyzers.rules import BROKEN, Facts, Letter, classify_letter, judge, rules_for_letters
from dlq.analyzers.rules.letter import Finding, Rule
from dlq.core.causes import CAUSES
from dlq.core.record import Death, Record

KINDS = ("rabbitmq", "memory", "activemq", "artemis", "rocketmq", "never seen")
QUEUES = (
    "orders.dlq", "EasyNetQ_Default_Error_Queue", "ActiveMQ.DLQ", "DLQ", "%DLQ%pay", "%DLQ%", "",
    "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # fmt: skip
NAMES = (
    "x-first-death-reason", "x-last-death-queue", "x-exception-message", "x-exception-stacktrace", "x-original-exchange",
    "MT-Reason", "MT-Fault-RetryCount", "NServiceBus.FailedQ", "NServiceBus.TimeOfFailure", "rbs2-error-details",
    "x-error", "x-retry-count", "retry-count", "__TypeId__", "dlqDeliveryFailureCause", "originalExpiration", "message-id",
    "original-destination", "_AMQ_ORIG_ADDRESS", "_AMQ_ACTUAL_EXPIRY", "queueOffset", "reconsumeTimes", "sysFlag",
    "UNIQ_KEY", "RETRY_TOPIC", "REAL_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "TRANSACTION_CHECK_TIMES",
    "1ST_POP_TIME", "dlq_replay_lap", "KEYS",
)  # fmt: skip
PIECES = (
    "java.lang.Throwable: ", "Caused by: ", "\n\tat a.B.c(B.java:1)", "Delivery[2] exceeds redelivery policy limit:",
    "Message Expired. Expiration:", "99999999999999999999", "-1", "%RETRY%pay_orders", "{", '"data"', "2026-13-45", "\x00",
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=5).map("".join))
MAPS = st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), TEXTS, max_size=8)
TIMES = st.none() | st.integers(-(2**62), 2**62)
COUNTS = st.none() | st.integers(-(2**63), 2**63 - 1)
DEATHS = st.builds(
    Death,
    st.none() | st.sampled_from(("rejected", "expired", "maxlen", "delivery_limit", "?")),
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.just(()),
    COUNTS,
    TIMES,
    st.none() | TEXTS,
)
BODIES = st.binary(max_size=60) | st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: (st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("data", "msg", "Exception", "Queue", "coordinator", "checkBackId")), inner, max_size=3)), max_leaves=6).map(
    lambda document: json.dumps(document).encode(),
)  # fmt: skip
LETTERS = st.builds(
    Record, record_id=st.just("0" * 32), source=st.just("orders"), broker=st.just("shop"), broker_kind=st.sampled_from(KINDS),
    dead_letter_queue=st.sampled_from(QUEUES), broker_version=st.none() | TEXTS, message_id=st.none() | TEXTS,
    key=st.none() | TEXTS, origin=st.none() | TEXTS, exchange=st.none() | TEXTS, routing_key=st.none() | TEXTS, captured_at=TIMES,
    published_at=TIMES, dead_at=TIMES, failure_text=st.none() | TEXTS, deaths=st.lists(DEATHS, max_size=3).map(tuple),
    attempts=COUNTS, headers=MAPS, properties=MAPS, body=BODIES,
)  # fmt: skip
FACTS = Facts({"orders": {"orders": 3}}, {"orders": ("unrouted",)}, {"orders": {"orders": "dlx"}})


@given(letter=LETTERS)
def test_whatever_is_in_a_letter_it_is_classified_and_no_rule_fails(letter: Record) -> None:
    verdict = judge(letter, FACTS)
    assert verdict.cause in CAUSES
    assert verdict.rule != BROKEN, verdict.evidence


def hasty(_letter: Letter, _facts: Facts) -> Finding | None:
    """always"""
    raise ZeroDivisionError("no time")


def by_hand(_letter: Letter, _facts: Facts) -> Finding | None:
    """always"""
    return Finding("it was", error_text="com.shop.StockException: none left")


def ask(monkeypatch: pytest.MonkeyPatch, *asked: Any) -> None:
    table = tuple(Rule(find, "application_error", "framework") for find in asked)
    monkeypatch.setattr(rules, "_list_rules", lambda _kind: table)


def test_a_rule_that_fails_makes_its_letter_unknown_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, hasty, by_hand)
    verdict, text = classify_letter(Letter._make(record()), Facts(), rules_for_letters(Facts()))
    assert (verdict.rule, verdict.cause, verdict.mechanism) == (BROKEN, "unknown", "none")
    assert verdict.evidence == "the rule hasty failed on it: ZeroDivisionError: no time"
    assert text is None
    ask(monkeypatch, by_hand, hasty)
    assert judge(record(), Facts()).rule == "by-hand", "an earlier rule spares it the faults of later ones"


def test_a_text_that_cannot_be_explained_makes_its_letter_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, by_hand)
    explain = rules.exceptions.explain

    def stumble(*of: Any) -> Any:
        if any(of):
            raise RecursionError("too deep")
        return explain(*of)

    monkeypatch.setattr(rules.exceptions, "explain", stumble)
    verdict = judge(record(), Facts())
    assert (verdict.rule, verdict.cause) == (BROKEN, "unknown")
    assert verdict.evidence == "the rule for exceptions failed on it: RecursionError: too deep"


def test_a_fact_that_no_pull_writes_makes_a_rule_fail_and_nothing_else() -> None:
    odd = Facts(delivery_limits={"orders": {"orders": "many"}})  # type: ignore[dict-item]
    assert judge(died(("delivery_limit", "orders", 1)), odd).rule == BROKEN
    assert judge(died(("rejected", "orders", 1)), odd).rule == "reject"
