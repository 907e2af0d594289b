"""The client's own log beside bursts of suppressed duplicates."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from unit.analyzers.suppressed import CONSUMER, PRODUCER, frame, marked, suppressed

from dlq.analyzers import bursts, client_log
from dlq.archive.store import LocalStore
from dlq.core.errors import UsageError


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
