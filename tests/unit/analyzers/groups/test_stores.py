"""What stores outside say of a letter: consumed, consuming, no record, an expired one; ready, prepared."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.analyzers.groups import stores
from dlq.analyzers.groups.stores import (
    KINDS,
    Answer,
    Found,
    Letter,
    Record,
    answer,
    fold,
    is_asked,
    strongest,
)
from dlq.core.configuration import parse
from dlq.core.store_facts import Fact

HOUR = 3_600_000_000
ASKED = 1_795_007_260_000_000
LATER, BEFORE = ASKED + HOUR, ASKED - HOUR
UNTIL = "2026-11-18T14:07:40Z"
SETTINGS = parse({
    "evidence": {
        "dedup": {"kind": "rocketmq-dedup", "url": "redis://cache", "sources": ["pay"]},
        "named": {"kind": "rocketmq-dedup", "url": "redis://cache", "application": "shop"},
        "shine": {"kind": "shine-mq", "url": "redis://cache", "sources": ["shop*"]},
    },
}).evidence  # fmt: skip


def dead(message_id: str | None = "m", **known: Any) -> Letter:
    given = {"cause": "redelivery_exhausted", "key": message_id, "origin": "orders", "died_at": ASKED - 2 * HOUR}  # fmt: skip
    queue = {"broker_kind": "rocketmq", "dead_letter_queue": "%DLQ%pay"}
    return Letter(message_id=message_id, **{**queue, **given, **known})


def rejected(message_id: str | None = "m", **known: Any) -> Letter:
    return Letter("rabbitmq", "dead", cause="poison_ack", message_id=message_id, **known)


def told(store: str, letter: Letter, facts: list[Fact] | None) -> Answer:
    """What a store that has these facts says of a letter."""
    settings = SETTINGS[store]
    asked = stores.describe_store(settings, ASKED)
    keys = KINDS[settings.kind].keys(letter, asked)
    mine = None if facts is None else [fact for fact in facts if fact.key in keys]
    return answer(settings.kind, letter, asked, mine)


# The letter, what the listener's store has of it, and: its state, and in words.
CONSUMED: list[tuple[Letter, list[Fact] | None, str, str]] = [
    (dead("done"), [Fact("pay:orders:done", "CONSUMED", LATER)], "consumed", f"consumed, its record expires at {UNTIL}"),
    (dead("done-for-ever"), [Fact("pay:orders:done-for-ever", "CONSUMED")], "consumed", "consumed"),
    (dead("done-once"), [Fact("pay:orders:done-once", "CONSUMED", BEFORE)], "consumed_before", "consumed; expired record, of 2026-11-18T12:07:40Z"),
    (dead("just-gone"), [Fact("pay:orders:just-gone", "CONSUMED", ASKED)], "consumed_before", "consumed; expired record, of 2026-11-18T13:07:40Z"),
    (dead("at-it"), [Fact("pay:orders:at-it", "CONSUMING", LATER)], "consuming", f"consuming, its record expires at {UNTIL}"),
    (dead("at-it-for-ever"), [Fact("pay:orders:at-it-for-ever", "CONSUMING")], "consuming", "consuming"),
    (dead("crashed"), [Fact("pay:orders:crashed", "CONSUMING", BEFORE)], "abandoned", "consuming; expired record, of 2026-11-18T12:07:40Z"),
    (dead("tagged", tag="paid"), [Fact("pay:orders:paid:tagged", "CONSUMED")], "consumed", "consumed"),
    (dead("no-tag", tag=""), [Fact("pay:orders:no-tag", "CONSUMED")], "consumed", "consumed"),
    (dead("other-tag", tag="paid"), [Fact("pay:orders:other-tag", "CONSUMED")], "no_record", "no record"),
    (dead("other-group", dead_letter_queue="%DLQ%bill"), [Fact("pay:orders:other-group", "CONSUMED")], "no_record", "no record"),
    (dead("m1", key="order-1"), [Fact("pay:orders:order-1", "CONSUMED")], "consumed", "consumed"),
    (dead("both"), [Fact("pay:orders:both", "CONSUMING", LATER), Fact("pay:orders:both", "CONSUMED", LATER)], "consumed", f"consumed, its record expires at {UNTIL}"),
    (dead("odd"), [Fact("pay:orders:odd", "FOO", LATER)], "no_record", "no record"),
    (dead(None), [Fact("pay:orders:", "CONSUMED")], "no_record", "no record"),
    (dead("fresh"), [], "no_record", "no record"),
    (dead("timeless", died_at=None), [], "no_record", "no record"),
    (dead("old", died_at=ASKED - 25 * HOUR), [], "too_old", "no record; one expires after 1d, and it died before that"),
    (dead("old-done", died_at=ASKED - 25 * HOUR), [Fact("pay:orders:old-done", "CONSUMED")], "consumed", "consumed"),
    (dead("unasked"), None, "unasked", "did not answer"),
]  # fmt: skip


def test_what_its_consumer_did_is_said() -> None:
    for letter, facts, state, words in CONSUMED:
        assert told("dedup", letter, facts) == (state, None, f"dedup: {words}"), letter.message_id


def test_a_listener_may_have_a_name_of_its_own() -> None:
    assert told("named", dead(), [Fact("shop:orders:m", "CONSUMED")]).store_state == "consumed"
    assert told("named", dead(), [Fact("pay:orders:m", "CONSUMED")]).store_state == "no_record"


FIRST = "redisCoordinator_order_10.0.0.1_1795000000001"
AGAIN = "order_10.0.0.1_1795000000002"
NOTHING = "no record: its producer has nothing open"
COMPENSATED = "compensated: sent after a check-back"
COORDINATED: list[tuple[Letter, list[Fact], str | None, str]] = [
    (rejected("closed", work="W"), [], None, NOTHING),
    (rejected("ready"), [Fact("message:ready", "ready")], "ready", "ready: its producer has no confirm and sends it again"),
    (rejected("undone"), [Fact("message:undone", "rolled_back"), Fact("message:undone", "ready")], "rolled_back", "rolled back: its producer was told to undo the work"),
    (rejected("open", work="W"), [Fact("work:W", "prepared")], "prepared", "prepared: its producer has not said how the work ended"),
    (rejected("counted"), [Fact("message:counted", "retries", None, 2)], None, f"{NOTHING}, 2 failed deliveries counted"),
    (rejected("workless"), [Fact("work:W", "prepared")], None, NOTHING),
    (rejected(AGAIN, coordinator="redisCoordinator"), [], "compensated", COMPENSATED),
    (rejected(AGAIN, coordinator="redisCoordinator"), [Fact(f"message:{AGAIN}", "ready"), Fact(f"message:{AGAIN}", "retries", None, 1)], "ready", f"ready: its producer has no confirm and sends it again, {COMPENSATED}, 1 failed deliveries counted"),
    (rejected(FIRST, coordinator="redisCoordinator"), [], None, NOTHING),
    (rejected(AGAIN), [], None, NOTHING),
]  # fmt: skip


def test_its_producers_coordinator_knows_how_the_transaction_stands() -> None:
    for letter, facts, state, words in COORDINATED:
        assert told("shine", letter, facts) == (None, state, f"shine: {words}"), letter.message_id


ASKS: list[tuple[str, str, Letter, bool]] = [
    ("dedup", "pay", dead(), True),
    ("dedup", "pays", dead(), False),
    ("dedup", "pay", dead(cause=None), False),
    ("dedup", "pay", dead(origin=None), False),
    ("dedup", "pay", dead(dead_letter_queue="HALF"), False),
    ("dedup", "pay", rejected(), False),
    ("named", "any", dead(), True),
    ("shine", "shop1", rejected(), True),
    ("shine", "shop1", rejected(""), False),
    ("shine", "shop1", rejected(None), False),
    ("shine", "shop1", dead(), False),
]


@each_row(("store", "source", "letter", "asked"), ASKS)
def test_a_store_is_asked_of_what_it_may_know(store: str, source: str, letter: Letter, asked: bool) -> None:
    assert is_asked(SETTINGS[store], source, letter) == asked


def test_the_strongest_record_counts() -> None:
    facts = [Fact("k", "CONSUMED", BEFORE), Fact("k", "CONSUMED"), Fact("k", "CONSUMED", LATER), Fact("k", "CONSUMING", LATER + 1)]  # fmt: skip
    assert fold(facts) == fold(facts[::-1]) == Found(Record(True, LATER))
    assert fold([]) == Found()
    counted = [Fact("k", "retries", None, 1), Fact("k", "retries"), Fact("k", "retries", None, 3)]
    assert fold(counted).failures == 3


def test_of_several_stores_the_one_that_knows_most_is_heard() -> None:
    said = [Answer("too_old", None, "b: x"), Answer("consumed", "ready", "a: y"), Answer(None, None, "c: z")]
    assert stores.together(said) == Answer("consumed", "ready", "a: y; b: x; c: z")
    assert strongest([None, "no_record", "unasked"]) == "unasked"
    assert strongest([None]) is None


@pytest.mark.parametrize(
    ("evidence", "answered", "both"),
    [(None, "t", "t"), ("e", "t", "e; t"), ("e" * 400, "t" * 400, "e" * 300 + "; " + "t" * 198)],
)
def test_neither_evidence_nor_answer_crowds_out_more(evidence: str | None, answered: str, both: str) -> None:
    assert stores.with_told(evidence, answered) == both
