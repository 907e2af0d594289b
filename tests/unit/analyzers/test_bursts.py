"""Bursts of suppressed duplicates, and the client's own log beside them."""

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dlq.analyzers import bursts, client_log
from dlq.archive.store import LocalStore
from dlq.core.errors import UsageError

PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"
COLUMNS = (
    "record_id string, source string, broker string, cause string, connection_id string, consumer_id string, "
    "producer_id string, producer_seq bigint, origin string, message_id string, fingerprint string, "
    "dead_at timestamp, published_at timestamp, captured_at timestamp, "
    "user_rule string, advice string, advice_reason string, incident_id string"
)


def suppressed(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": f"r{number}",
        "source": "legacy",
        "broker": "amq",
        "cause": "suppressed_duplicate",
        "connection_id": "ID:vm-33407-1795194807825-3:1",
        "consumer_id": CONSUMER,
        "producer_id": PRODUCER,
        "producer_seq": number,
        "origin": "orders",
        "message_id": f"{PRODUCER}:{number}",
        "advice": "check_first",
        "advice_reason": "before",
        **changes,
    }


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> Any:
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], COLUMNS)


def marked(spark: SparkSession, rows: list[dict[str, Any]], log: Any = None) -> dict[str, dict[str, Any]]:
    return {row.record_id: row.asDict() for row in bursts.mark(frame(spark, rows), log).collect()}


def at(second: int) -> datetime:
    return datetime(2026, 11, 20, 22, 0, second, tzinfo=UTC)


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


def dispatch(number: int, consumer: str = CONSUMER, text: str = "payload") -> str:
    return (
        f"MessageDispatch {{commandId = 0, responseRequired = false, consumerId = {consumer}, destination = queue://orders, "
        f"message = ActiveMQTextMessage {{commandId = 5, responseRequired = true, messageId = {PRODUCER}:{number}, "
        f"originalDestination = null, originalTransactionId = null, producerId = {PRODUCER}, destination = queue://orders, "
        "transactionId = null, deliveryTime = 0, expiration = 0, timestamp = 1, arrival = 0, brokerInTime = 1, "
        f"brokerOutTime = 1795194809{number:03d}, correlationId = x, messageId = ID:forged-1-1-1:1:1:1:1, replyTo = null, "
        f"properties = {{messageId = ID:forged}}, readOnlyProperties = true, text = {text}}}, redeliveryCounter = 1}}"
    )


def line(number: int, **changes: Any) -> str:
    consumer = changes.get("consumer", CONSUMER)
    return f"{consumer} suppressing duplicate delivery on connection, poison acking: {dispatch(number, **changes)}"


LAYOUTS = (
    "3695 [ActiveMQ Session Task-2] WARN org.apache.activemq.ActiveMQMessageConsumer - {}",
    "22:19:29.672 [ActiveMQ Session Task-2] WARN org.apache.activemq.ActiveMQMessageConsumer -- {}",
    "2026-11-20 22:19:37,092 | WARN  | {} | org.apache.activemq.ActiveMQMessageConsumer | ActiveMQ Session Task-1",
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three layouts, a text of several lines, a line twice, one without a letter, and other lines."""
    texts = [
        layout.format(line(n, text="first\nmessageId = ID:x\nlast")) for n, layout in enumerate(LAYOUTS, 1)
    ]
    others = [
        "22:19:28 INFO Successfully reconnected to tcp://broker:61616",
        f"WARN delivering duplicate {dispatch(7)}, pending transaction completion on ID:x will rollback",
        LAYOUTS[0].format(
            f"Duplicate non transacted dispatch to consumer: {CONSUMER}, poison acking: {dispatch(9)}"
        ),
        LAYOUTS[0].format(line(1)),
    ]
    path = tmp_path / "client [1].log"
    path.write_text("\n".join(texts + others))
    return path


def test_letters_and_lines_explain_each_other(spark: SparkSession, log: Path) -> None:
    letters = frame(spark, [suppressed(n) for n in (1, 2, 3, 4)])
    joined = client_log.join(letters, client_log.lines(spark, [str(log)])).cache()
    assert client_log.counts(joined) == {"explained": 3, "letters_without_line": 1, "lines_without_letter": 1}
    listed = {row.state: row for row in joined.filter("state <> 'explained'").collect()}
    assert listed["letters_without_line"].record_id == "r4"
    assert listed["lines_without_letter"].message_id == f"{PRODUCER}:9"
    assert listed["lines_without_letter"].destination == "queue://orders"
    assert joined.filter("record_id = 'r2'").first().time.timestamp() == 1795194809.002


def test_a_text_that_looks_like_a_dispatch_explains_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "client.log").write_text(line(1, text=dispatch(666)))
    found = client_log.lines(spark, [str(tmp_path / "client.log")])
    assert [row.log_message_id for row in found.collect()] == [f"{PRODUCER}:1"]


def test_a_log_that_breaks_off_or_that_spark_would_not_read_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = gzip.compress("\n".join(line(n) for n in range(2000)).encode())
    (tmp_path / "broken.log.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "_hidden.log").write_text(line(1))
    letters, store = frame(spark, [suppressed(1)]), LocalStore(str(tmp_path / "archive"))
    with pytest.raises(UsageError, match=r"broken\.log\.gz: it can't be read to its end"):
        client_log.write(spark, store, letters, [str(tmp_path / "broken.log.gz")], "log")
    with pytest.raises(UsageError, match="rename it"):
        client_log.files([str(tmp_path / "*.log")])


def test_the_log_tells_when_and_after_which_reconnect_a_burst_was_suppressed(
    spark: SparkSession, tmp_path: Path
) -> None:
    failed, back = (
        LAYOUTS[2].format("Transport (tcp://{}) failed, attempting"),
        "INFO Successfully reconnected to {}",
    )
    told = [failed.format("old:1"), back.format("tcp://old:2"), line(7)]
    told += [
        failed.format("a:61616"),
        back.format("tcp://b:61616"),
        line(1),
        line(2, text="x\n" + back + "\ny"),
    ]
    (tmp_path / "client.log").write_text("\n".join(told))
    found = client_log.lines(spark, [str(tmp_path / "client.log")]).cache()
    assert {row.log_message_id[-1]: row.log_reconnected for row in found.collect()} == {
        "7": "tcp://old:2",
        "1": "tcp://b:61616",
        "2": "tcp://b:61616",
    }
    rows = [suppressed(n) for n in (1, 2)]
    joined = client_log.join(frame(spark, rows), found)
    reason = marked(spark, rows, joined)["r2"]["advice_reason"]
    assert (
        "from 2026-11-20T17:13:29.001Z, after tcp://a:61616 had failed and it had reconnected to tcp://b:61616"
        in reason
    )
    [incident] = bursts.incidents(bursts.mark(frame(spark, rows), joined), joined).collect()
    assert [incident[name].timestamp() for name in ("start", "end")] == [1795194809.001, 1795194809.002]


def line_of_net(number: int) -> str:
    """As the source of Apache.NMS.ActiveMQ writes it."""
    message = (
        f"ActiveMQTextMessage[ProducerId={PRODUCER}Destination=queue://ordersTransactionId=OriginalDestination="
        f"MessageId={PRODUCER}:{number}OriginalTransactionId=GroupID=MessageId=ID:forged-1-1-1:1:1:1:1GroupSequence=0"
        "CorrelationId=xPersistent=TrueExpiration=0Priority=4ReplyTo=Timestamp=1Type=Content=MarshalledProperties="
        "System.Byte[]DataStructure=TargetConsumerId=Compressed=FalseRedeliveryCounter=1BrokerPath=Arrival=0UserID="
        f"RecievedByDFBridge=FalseDroppable=FalseCluster=BrokerInTime=1BrokerOutTime=1795194809{number:03d}] Text = x"
    )
    return (
        f"Consumer[{CONSUMER}] suppressing duplicate delivery on connection, poison acking: (MessageDispatch[ "
        f"commandId = 0 responseRequired = False ConsumerId = {CONSUMER} Destination = queue://orders "
        f"Message = {message} RedeliveryCounter = 1 ])"
    )


def test_the_log_of_a_net_client_tells_the_same(spark: SparkSession, tmp_path: Path) -> None:
    told = [
        "Transport failed to tcp://a:61616/, attempting to automatically reconnect due to: eof",
        "Successfully reconnected to: tcp://b:61616/",
        line_of_net(2),
    ]
    (tmp_path / "client.log").write_text("\n".join(told))
    joined = client_log.join(
        frame(spark, [suppressed(2)]), client_log.lines(spark, [str(tmp_path / "client.log")])
    )
    [row] = joined.collect()
    assert (row.state, row.destination, row.time.timestamp()) == (
        "explained",
        "queue://orders",
        1795194809.002,
    )
    assert (row.failed_transport, row.reconnected_to) == ("tcp://a:61616/", "tcp://b:61616/")


def test_another_consumer_of_the_same_message_explains_nothing(spark: SparkSession, log: Path) -> None:
    letters = frame(spark, [suppressed(2, consumer_id="ID:vm-1-1795194807825-3:1:1:2")])
    assert client_log.counts(client_log.join(letters, client_log.lines(spark, [str(log)])))["explained"] == 0


def test_logs_are_found_by_glob_and_read_compressed(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "old.log.gz", "wt") as packed:
        packed.write(line(5))
    found = client_log.files([str(tmp_path / "*.gz"), str(log)])
    assert len(found) == 2
    ids = {row.log_message_id for row in client_log.lines(spark, found).collect()}
    assert ids == {f"{PRODUCER}:{n}" for n in (1, 2, 3, 5, 9)}


def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        client_log.files([str(tmp_path / "none*.log")])
