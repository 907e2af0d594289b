"""What made two dead letters of one message: told apart by the ids that RocketMQ leaves in them."""

import pytest
from pyspark.sql import SparkSession
from unit.analyzers.letters import frame
from unit.analyzers.rocket_letters import dead, letter

from dlq.analyzers import duplicates, duplicates_rocketmq
from dlq.analyzers.classify import classify
from dlq.analyzers.rules import Facts
from dlq.core.record import Record

pytestmark = pytest.mark.spark


def committed(key: str, number: int) -> Record:
    properties = {
        "UNIQ_KEY": key,
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": f"at-{number}",
        "TRAN_MSG": "true",
    }
    return letter("%DLQ%pay", properties, flags=8, times=17)


LETTERS: list[tuple[Record, str | None]] = [
    (dead("single"), None),
    (dead("twice"), "redelivery_or_rebalance"),
    (dead("twice"), "redelivery_or_rebalance"),
    (dead("fallback"), "redelivery_or_rebalance"),
    (dead("fallback", ORIGIN_MESSAGE_ID="fallback", RECONSUME_TIME="17"), "redelivery_or_rebalance"),
    (dead("resent", ORIGIN_MESSAGE_ID="a"), "producer_resend"),
    (dead("resent", ORIGIN_MESSAGE_ID="b"), "producer_resend"),
    (committed("paid", 100), "double_commit"),
    (committed("paid", 200), "double_commit"),
    (dead("new-id-1", KEYS="order 17"), "business_resend"),
    (dead("new-id-2", KEYS="order 17"), "business_resend"),
    (dead("shared"), "several_groups"),
    (dead("shared", group="stock"), "several_groups"),
    (dead("again"), "redelivery_or_rebalance"),
    (dead("again", dlq_replay_id="r", dlq_replay_lap="1"), "replay_returned"),
    (dead(""), None),
    (dead(""), None),
]


def test_every_kind_of_duplicate_is_told_apart(spark: SparkSession) -> None:
    numbered = [record._replace(record_id=f"{n:032x}") for n, (record, _) in enumerate(LETTERS)]
    judged = classify(frame(spark, numbered), Facts())
    found = duplicates_rocketmq.find(judged)
    assert tuple(found.columns) == duplicates.COLUMNS
    rows = {int(row.record_id, 16): row for row in found.collect()}
    assert [rows[n].duplicate_kind if n in rows else None for n in range(len(LETTERS))] == [
        k for _, k in LETTERS
    ]
    assert [rows[n].first_of_group for n in (1, 2)] == [True, False]
    assert [rows[n].exact_copy for n in (5, 6)] == [False, True]
    assert [rows[n].exact_copy for n in (13, 14)] == [False, False]
    assert {rows[n].duplicate_group for n in (11, 12)} == {None}
    assert rows[9].duplicate_group == rows[10].duplicate_group != rows[1].duplicate_group
