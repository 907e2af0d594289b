"""Bursts of suppressed duplicates."""

from datetime import UTC

from pyspark.sql import SparkSession
from unit.analyzers.suppressed import CONSUMER, PRODUCER, at, frame, marked, suppressed

from dlq.analyzers import bursts


def test_one_reconnect_is_one_incident_and_each_letter_is_told_what_it_shows(spark: SparkSession) -> None:
    rows = [suppressed(n) for n in (40, 41, 42)] + [
        suppressed(9, cause="expired"),
        suppressed(8, connection_id=None),
    ]
    said = marked(spark, rows)
    assert len({said[f"r{n}"]["incident_id"] for n in (40, 41, 42)}) == 1
    assert said["r9"]["incident_id"] is said["r8"]["incident_id"] is None
    assert said["r9"]["advice_reason"] == "before"
    assert "one of 3 letters" in said["r40"]["advice_reason"]
    assert "40 to 42 came without a gap" in said["r41"]["advice_reason"]
    assert "often processed" in said["r40"]["advice_reason"]
    assert "often never processed" in said["r41"]["advice_reason"]
    [incident] = bursts.incidents(bursts.mark(frame(spark, rows))).collect()
    assert (incident["size"], incident["sources"], incident["first_record_id"]) == (3, ["legacy"], "r40")


def test_a_burst_names_its_connection_its_clients_and_the_ranges_of_their_messages(
    spark: SparkSession,
) -> None:
    other = {"producer_id": f"{PRODUCER}0", "consumer_id": f"{CONSUMER}0", "origin": "stock"}
    rows = [suppressed(n) for n in (9, 10, 11, 20)] + [suppressed(1, record_id="o", **other)]
    [burst] = bursts.table(bursts.mark(frame(spark, [*rows, suppressed(5, connection_id=None)]))).collect()
    assert burst.ranges == [f"{PRODUCER}:9-11", f"{PRODUCER}:20", f"{PRODUCER}0:1"]
    assert (burst.consumers, burst.producers) == ([CONSUMER, f"{CONSUMER}0"], [PRODUCER, f"{PRODUCER}0"])
    assert (burst.broker, burst.origins, burst.beyond_prefetch) == ("amq", ["orders", "stock"], False)
    assert burst.connection_id == rows[0]["connection_id"]


def test_other_connections_are_other_incidents(spark: SparkSession) -> None:
    said = marked(spark, [suppressed(1), suppressed(2, connection_id="ID:vm-1-1795194807825-3:2")])
    assert said["r1"]["incident_id"] != said["r2"]["incident_id"]


def test_a_gap_in_the_sequence_ends_a_range(spark: SparkSession) -> None:
    said = marked(spark, [suppressed(n) for n in (1, 2, 7)])
    assert "1 to 2 came without a gap" in said["r2"]["advice_reason"]
    assert "without a gap" not in said["r7"]["advice_reason"]


def test_what_no_audit_remembers_is_another_fault(spark: SparkSession) -> None:
    newest = 10_000
    oldest = bursts.oldest_known(newest)
    said = marked(spark, [suppressed(newest), suppressed(oldest), suppressed(oldest - 1)])
    assert "no audit could have known it" in said[f"r{oldest - 1}"]["advice_reason"]
    assert "no audit" not in said[f"r{oldest}"]["advice_reason"]


def test_reconnects_hours_apart_are_told_apart_by_the_log_alone(spark: SparkSession) -> None:
    rows = [suppressed(n) for n in (1, 2, 10_000)]
    told = [
        ("r1", at(1), "tcp://a:1"),
        ("r2", at(2), "tcp://a:1"),
        ("r10000", at(3).replace(hour=23), "tcp://b:1"),
    ]
    columns = "record_id string, time timestamp, failed_transport string, reconnected_to string"
    log = spark.createDataFrame([(*one, None) for one in told], columns)
    said = marked(spark, rows, log)
    assert said["r1"]["incident_id"] == said["r2"]["incident_id"] != said["r10000"]["incident_id"]
    assert "no audit" not in said["r1"]["advice_reason"]
    assert "after tcp://b:1 had failed" in said["r10000"]["advice_reason"]
    alone = marked(spark, rows)["r1"]["advice_reason"]
    assert "if all of its burst died at one reconnect, no audit could have known it" in alone


def test_a_burst_of_which_nothing_has_a_time_begins_with_its_capture(spark: SparkSession) -> None:
    [incident] = bursts.incidents(bursts.mark(frame(spark, [suppressed(1, captured_at=at(30))]))).collect()
    assert [incident[name].astimezone(UTC) for name in ("start", "peak", "end")] == [at(30)] * 3


def test_an_audit_of_2048_remembers_33_arrays_of_64_bits() -> None:
    assert bursts.oldest_known(2_111) == 0
    assert bursts.oldest_known(2_112) == 64
    assert bursts.oldest_known(10_000) == 7_936


def test_more_producers_than_an_audit_remembers_are_said(spark: SparkSession) -> None:
    rows = [suppressed(n, producer_id=f"{PRODUCER[:-1]}{n}") for n in range(65)]
    assert "more producers than an audit remembers" in marked(spark, rows)["r3"]["advice_reason"]


def test_a_burst_without_a_log_lies_between_its_newest_message_and_its_capture(spark: SparkSession) -> None:
    rows = [
        suppressed(1, published_at=at(1), captured_at=at(30)),
        suppressed(2, published_at=at(2), captured_at=at(31)),
    ]
    [incident] = bursts.incidents(bursts.mark(frame(spark, rows))).collect()
    times = [incident[name].astimezone(UTC) for name in ("start", "peak", "end")]
    assert times == [at(2), at(2), at(30)]


def test_a_burst_beyond_the_default_prefetch_says_so(spark: SparkSession) -> None:
    said = marked(spark, [suppressed(n) for n in range(bursts.DEFAULT_PREFETCH + 1)])
    assert "more than the default prefetch" in said["r5"]["advice_reason"]
    rows = [suppressed(n) for n in range(bursts.DEFAULT_PREFETCH + 1)]
    assert bursts.table(bursts.mark(frame(spark, rows))).first().beyond_prefetch
    assert "default prefetch" not in marked(spark, [suppressed(1)])["r1"]["advice_reason"]


def test_the_users_own_advice_stays(spark: SparkSession) -> None:
    said = marked(spark, [suppressed(1, user_rule="mine", advice="never", advice_reason="we know")])
    assert said["r1"]["advice_reason"] == "we know"
