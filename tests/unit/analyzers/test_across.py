"""What only shows between letters: duplicates, and the advice that follows."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from unit.analyzers.letters import died, frame, record

from dlq.analyzers.classify import classify, judged_schema
from dlq.analyzers.spark.job import across as look_across
from dlq.analyzers.rules import Facts
from dlq.core.causes import ADVICE
from dlq.core.record import Record
from dlq.core.settings import Settings


@pytest.fixture(scope="module")
def across(spark: SparkSession) -> Any:
    def run(*letters: Record) -> list[dict[str, Any]]:
        named = [letter._replace(record_id=f"{n:032x}", captured_at=n) for n, letter in enumerate(letters)]
        # Back from rows, as in a later analysis: stage 2 sees no plan of stage 1.
        judged = spark.createDataFrame(classify(frame(spark, named), Facts()).collect(), judged_schema())
        rows = look_across(judged, Settings(), {letter.broker_kind for letter in letters}).collect()
        return [row.asDict() for row in sorted(rows, key=lambda row: str(row.record_id))]

    return run


def rejected(message_id: str | None = None, body: str = "", queue: str = "orders", **columns: Any) -> Record:
    content = {"body": body.encode(), "body_size": len(body), "body_sha256": f"sha of {body}"}
    return died(("rejected", queue, 1), message_id=message_id, **{"key": message_id, **content, **columns})


def failed(message: str, name: str = "x") -> Record:
    return record(headers={"x-error-type": name, "x-error-message": message})


# letters, their (kind, in a group, advice)
GROUPS: list[tuple[list[Record], list[tuple[str | None, bool, str]]]] = [
    ([rejected(), rejected()], [(None, False, "fix_first")] * 2),
    (
        [rejected("m1", "a"), rejected("m1", "a")],
        [("same_message_id", True, "fix_first"), ("same_message_id", True, "never")],
    ),
    (
        [rejected("m2", "a2"), rejected("m2", "b2")],
        [("same_message_id", True, "fix_first"), ("same_message_id", True, "check_first")],
    ),
    (
        [rejected("m3", "a3", key="k3"), rejected("m4", "a4", key="k3")],
        [("same_key", True, "fix_first"), ("same_key", True, "check_first")],
    ),
    (
        [rejected(None, "same"), rejected(None, "same")],
        [("same_body", True, "fix_first"), ("same_body", True, "check_first")],
    ),
    # Distinct ids: the producer says that these are two messages.
    ([rejected("m5", "ping"), rejected("m6", "ping")], [("same_body", True, "fix_first")] * 2),
    # The same message dead at two consumers' queues: each has its own.
    (
        [rejected("m7", "a7"), rejected("m7", "a7", queue="billing")],
        [("several_groups", False, "fix_first")] * 2,
    ),
    # One death, captured in two dead-letter queues.
    (
        [rejected("m8", "a8"), rejected("m8", "a8", dead_letter_queue="all.dlq", source="all")],
        [("same_message_id", True, "fix_first"), ("same_message_id", True, "never")],
    ),
    # A replay that died again is a new lap.
    (
        [rejected("m9", "a9"), rejected("m9", "a9", headers={"dlq_replay_lap": "1"})],
        [(None, False, "fix_first")] * 2,
    ),
    ([rejected("m10", "a10"), rejected("m10", "a10", broker="other")], [(None, False, "fix_first")] * 2),
    ([rejected("", "a11"), rejected("", "b11")], [(None, False, "fix_first")] * 2),
]


def test_duplicates_are_told_apart(across: Any) -> None:
    rows = across(*(letter for letters, _ in GROUPS for letter in letters))
    said = [(row["duplicate_kind"], row["duplicate_group"] is not None, row["advice"]) for row in rows]
    assert said == [expected for _, group in GROUPS for expected in group]
    groups = [row["duplicate_group"] for row in rows if row["duplicate_group"]]
    assert sorted(groups[::2]) == sorted(groups[1::2])
    assert len(set(groups)) == len(groups) // 2


ADVISED: list[tuple[Record, str]] = [
    (record(), "check_first"),
    (rejected(), "fix_first"),
    (rejected(headers={"dlq_replay_lap": "3"}), "never"),
    (rejected(headers={"dlq_replay_lap": "2"}), "fix_first"),
    (died(("expired", "orders", 1)), "check_first"),
    (died(("maxlen", "orders", 1)), "fix_first"),
    (died(("delivery_limit", "orders", 1)), "fix_first"),
    (failed("read timed out"), "replay"),
    (failed("connection refused"), "replay"),
    (failed("x", "shop.ThrottledError"), "replay"),
    (failed("duplicate key value"), "check_first"),
    (failed("deadlock detected"), "fix_first"),
    (failed("access denied"), "fix_first"),
    (failed("cannot parse"), "fix_first"),
    (failed("order not found"), "check_first"),
    (failed("x", "java.lang.NullPointerException"), "fix_first"),
    (failed("stock is negative", "com.shop.StockException"), "fix_first"),
]


def test_advice_follows_the_cause_and_has_a_reason(across: Any) -> None:
    rows = across(*(letter for letter, _ in ADVISED))
    assert [row["advice"] for row in rows] == [advice for _, advice in ADVISED]
    assert all(row["advice_reason"] for row in rows)
    assert {row["advice"] for row in rows} <= set(ADVICE)
