"""Did the money move? Every state of a transaction, from the records that a broker leaves."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from unit.analyzers.letters import frame
from unit.analyzers.rocket_letters import BORN, MINUTE, letter

from dlq.analyzers import transactions
from dlq.analyzers.classify import classify
from dlq.analyzers.rules import Facts
from dlq.analyzers.transaction_facts import NodeFacts
from dlq.core.record import Record

pytestmark = pytest.mark.spark
HOUR = 60 * MINUTE
NAMELESS = None
"""The message id of a half message whose producer gave it no unique key."""
TWINS = "broker-c"
"""Where the twins of other nodes' half messages were committed."""


def half(key: str | None, offset: int, checks: int = 0, **fields: Any) -> Record:
    named = {} if key is None else {"UNIQ_KEY": key}
    properties = {**named, "REAL_TOPIC": "orders", "PGROUP": "tx", "TRAN_MSG": "true"}
    counted = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
    immune = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"} if fields.pop("immune", False) else {}
    return letter("RMQ_SYS_TRANS_HALF_TOPIC", {**properties, **counted, **immune}, offset=offset, **fields)


def ends(text: str, **fields: Any) -> Record:
    return letter(
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"}, text.encode(), **{"stored": 2 * MINUTE, **fields}
    )


def real(key: str, prepared: int, **fields: Any) -> Record:
    return letter("orders", {"UNIQ_KEY": key}, flags=8, prepared=prepared, **{"stored": 2 * MINUTE, **fields})


def given_up(key: str, checks: int = 15, **fields: Any) -> Record:
    properties = {
        "UNIQ_KEY": key,
        "REAL_TOPIC": "orders",
        "PGROUP": "tx",
        "TRANSACTION_CHECK_TIMES": str(checks),
    }
    return letter("TRANS_CHECK_MAX_TIME_TOPIC", properties, **{"stored": 8 * MINUTE, **fields})


RECORDS = [
    half("young", 0),
    half("committed", 1), real("committed", 100),
    half("rolled-back", 2),
    half("unseen-end", 3, seen=100 * HOUR),
    half("checked-out", 4), half("checked-out", 5, checks=15, stored=7 * MINUTE), given_up("checked-out"),
    half("too-old", 6), given_up("too-old", checks=1, stored=73 * HOUR),
    half("both", 7), half("both", 8, checks=1, stored=2 * MINUTE), real("both", 700), given_up("both"),
    half("refused-late", 9), given_up("refused-late"),
    half("answered", 10), half("answered", 11, checks=1, stored=2 * MINUTE), real("answered", 1100),
    half("resumed", 12), given_up("resumed", stored=3 * MINUTE), half("resumed", 13, stored=5 * MINUTE),
    half("just-now", 14, node="broker-b", seen=1000),
    given_up("just-now", node="broker-b", stored=9 * MINUTE, seen=1000),
    half("immune", 15, immune=True), half("immune", 16, checks=15, immune=True), given_up("immune"),
    half("twice", 17), real("twice", 1700), real("twice", 1701, stored=3 * MINUTE),
    half("elsewhere", 2, node="broker-b"),
    half(NAMELESS, 18),
    half("orphan", 19), given_up("orphan"), half("orphan", 3, node=TWINS), real("orphan", 300, node=TWINS),
    ends("1"), ends("2, 9,\n", stored=9 * MINUTE), ends("17,11,7,18,noise,"), ends("3,", seen=100 * HOUR),
]  # fmt: skip
EXPECTED = {
    # key: state, discarded, whether a check reached the producer
    "young": ("pending", False, "no"),
    "committed": ("committed", False, "no"),
    "rolled-back": ("rolled_back", False, "no"),
    "unseen-end": ("ended", False, "no"),
    "checked-out": ("check_max_exceeded", True, "unknown"),
    "too-old": ("check_skipped", True, "unknown"),
    "both": ("committed", True, "unknown"),
    "refused-late": ("rolled_back", True, "unknown"),
    "answered": ("committed", False, "yes"),
    "resumed": ("pending", True, "unknown"),
    "just-now": ("pending", True, "unknown"),
    "immune": ("check_max_exceeded", True, "no"),
    "twice": ("committed", False, "no"),
    "elsewhere": ("pending", False, "no"),
    NAMELESS: ("ended", False, "no"),
    "orphan": ("committed", True, "unknown"),
}
LETTERS = {
    # the one record that stands for a transaction: its topic, and its cause
    "young": ("half", "transaction_pending"),
    "elsewhere": ("half", "transaction_pending"),
    "unseen-end": ("half", "unknown"),
    "checked-out": ("discarded", "check_max_exceeded"),
    "too-old": ("discarded", "check_skipped"),
    "both": ("discarded", "check_max_exceeded"),
    "refused-late": ("discarded", "check_max_exceeded"),
    "resumed": ("half", "transaction_pending"),
    "just-now": ("discarded", "transaction_pending"),
    "immune": ("discarded", "check_max_exceeded"),
    NAMELESS: ("half", "unknown"),
    "orphan": ("discarded", "check_max_exceeded"),
}
TOPICS = {"RMQ_SYS_TRANS_HALF_TOPIC": "half", "TRANS_CHECK_MAX_TIME_TOPIC": "discarded"}


@pytest.fixture(scope="module")
def resolved(spark: SparkSession) -> tuple[dict[str, Any], list[Any]]:
    """The transactions by key, and the settled stage 1 rows."""
    numbered = [record._replace(record_id=f"{n:032x}") for n, record in enumerate(RECORDS)]
    looked_at = datetime.fromtimestamp((BORN + 9 * MINUTE + 1000) / 1000, UTC)
    facts = tuple(
        NodeFacts("pay", node, looked_at, 72, 30_000, 33_000, True)
        for node in ("broker-a", "broker-b", TWINS)
    )
    judged = classify(frame(spark, numbered), Facts()).cache()
    found = transactions.resolve(judged, transactions.facts_frame(spark, facts)).cache()
    rows = {
        NAMELESS if "|" in row.unique_key else row.unique_key: row
        for row in found.filter(f"broker_node <> '{TWINS}'").collect()
    }
    settled = transactions.settle(judged, found).collect()
    return rows, settled


def test_every_transaction_has_its_state(resolved: Any) -> None:
    rows, _ = resolved
    said = {key: (row.state, row.discarded, row.check_reached_producer) for key, row in rows.items()}
    assert said == EXPECTED


def test_one_record_stands_for_a_transaction_that_needs_somebody(resolved: Any) -> None:
    _, settled = resolved
    letters = {
        row.message_id: (TOPICS[row.dead_letter_queue], row.cause) for row in settled if row.cause is not None
    }
    assert letters == LETTERS
    assert sum(row.cause is not None for row in settled) == len(LETTERS)
    assert all(row.beside_the_letter == (row.cause is None) for row in settled)


def test_a_transactions_columns_tell_its_story(resolved: Any) -> None:
    rows, _ = resolved
    row = rows["checked-out"]
    assert (row.checks, row.copies, row.topic, row.producer_group, row.source) == (
        15,
        2,
        "orders",
        "tx",
        "pay",
    )
    assert (row.broker_node, len(row.record_ids), row.real_record_id) == ("broker-a", 3, None)
    assert row.last_seen > row.first_seen
    assert "after 15 checks" in row.evidence
    assert "written 2 times" in rows["twice"].evidence
    assert "pull again" in rows["just-now"].evidence
    assert "resumed" in rows["resumed"].evidence
    assert rows["both"].real_record_id is not None
    assert "no unique key" in rows[NAMELESS].evidence
    assert "its twin on broker-c was committed" in rows["orphan"].evidence


def test_a_transaction_that_two_sources_hold_is_one_of_each(spark: SparkSession) -> None:
    seen_early, seen_late = [half("k", 1)], [half("k", 1), given_up("k")]
    records = [
        record._replace(record_id=f"{n:032x}", source=source)
        for n, (record, source) in enumerate(
            [*((r, "early") for r in seen_early), *((r, "late") for r in seen_late)]
        )
    ]
    judged = classify(frame(spark, records), Facts())
    found = transactions.resolve(judged, transactions.facts_frame(spark, ())).collect()
    states = {row.source: (row.state, [int(n, 16) for n in row.record_ids]) for row in found}
    assert states == {"early": ("pending", [0]), "late": ("check_max_exceeded", [1, 2])}
