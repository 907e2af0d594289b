"""An analysis end to end on small archives, in words."""

from typing import Any

import pytest
from archives import write_segment
from pyspark.sql import SparkSession
from unit.analyzers.letters import died, record

from dlq.analyzers.spark.job import analyze
from dlq.archive import analyses
from dlq.archive.store import LocalStore
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Rule, Settings

pytestmark = pytest.mark.usefixtures("spark")


def rejected(number: int, **columns: Any) -> Any:
    return died(("rejected", "orders", 1), record_id=f"{number:032x}", captured_at=number, **columns)


def verdicts(spark: SparkSession, store: LocalStore) -> dict[int, dict[str, Any]]:
    last = analyses.latest(store)
    assert last is not None
    rows = spark.read.parquet(*(store.url(name) for name in last.tables["verdicts"])).collect()
    return {int(row.record_id, 16): row.asDict() for row in rows}


def test_an_empty_archive_says_what_to_do(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="nothing captured yet"):
        analyze(store, Settings())


def test_every_record_gets_one_verdict_and_causes_are_counted(spark: SparkSession, store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1), rejected(2), record(record_id=f"{3:032x}")])
    result = analyze(store, Settings())
    assert (result.records, dict(result.causes)) == (3, {"poison_ack": 2, "unknown": 1})
    assert sorted(verdicts(spark, store)) == [1, 2, 3]


def test_a_letter_under_two_sources_is_judged_as_two(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1, message_id="m", body_size=1, body_sha256="aa")])
    write_segment(store, "p-1", [rejected(1, message_id="m", body_size=1, body_sha256="aa", source="again")])
    result = analyze(store, Settings())
    assert (result.records, dict(result.causes)) == (2, {"poison_ack": 2})


def test_segments_judged_before_are_not_judged_again(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1)])
    first = analyze(store, Settings())
    write_segment(store, "p-1", [rejected(2), record(record_id=f"{3:032x}")])
    second = analyze(store, Settings())
    assert [part["stems"] for part in second.extra["parts"]] == [("p-0",), ("p-1",)]
    assert second.extra["parts"][0] == first.extra["parts"][0]
    assert dict(second.causes) == {"poison_ack": 2, "unknown": 1}
    assert second.extra["changed"]["causes"] == {"poison_ack": 1, "unknown": 1}
    assert second.extra["changed"]["new_fingerprints"] == 1


def test_other_rules_judge_everything_again(spark: SparkSession, store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1)])
    analyze(store, Settings())
    rule = Rule("mine", "dead_letter_queue = 'orders.dlq'", "application_error", "replay", "we know this one")
    analyze(store, Settings(rules=(rule,)))
    said = verdicts(spark, store)[1]
    assert (said["rule"], said["cause"], said["mechanism"]) == ("mine", "application_error", "reject")
    assert (said["advice"], said["advice_reason"]) == ("replay", "we know this one")


def test_a_bad_rule_of_the_user_is_named(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1)])
    with pytest.raises(ConfigError, match="rule 'mine': where = 'no_such_column = 1'"):
        analyze(store, Settings(rules=(Rule("mine", "no_such_column = 1", "expired"),)))


def test_bodies_are_read_where_a_framework_keeps_the_exception_there(
    spark: SparkSession, store: LocalStore
) -> None:
    body = b'{"Exception": "System.TimeoutException: no answer\\r\\n   at Shop.Pay.Run()", "Queue": "pay"}'
    letter = record(record_id=f"{1:032x}", dead_letter_queue="EasyNetQ_Default_Error_Queue", body=body)
    write_segment(store, "p-0", [letter, rejected(2)])
    assert analyze(store, Settings()).records == 2
    said = verdicts(spark, store)[1]
    assert (said["rule"], said["exception_class"], said["origin"]) == (
        "easynetq",
        "System.TimeoutException",
        "pay",
    )


def test_since_takes_only_letters_captured_later(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1), rejected(1_000)])
    assert analyze(store, Settings(), since=500).records == 1


def test_an_archive_path_with_odd_characters_is_read(spark: SparkSession, tmp_path: Any) -> None:
    store = LocalStore(str(tmp_path / "my [archive] {1}*"))
    write_segment(store, "p-0", [rejected(1)])
    assert analyze(store, Settings()).records == 1
