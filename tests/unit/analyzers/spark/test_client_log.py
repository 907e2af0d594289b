"""The client's own log beside bursts of suppressed duplicates."""

import bz2
import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dlq.analyzers import plain
from dlq.analyzers.analysis import log_files
from dlq.analyzers.groups import bursts
from dlq.analyzers.groups import client_log as plain_log
from dlq.analyzers.groups.classified import Classified
from dlq.analyzers.groups.contract import Context
from dlq.analyzers.spark import client_log
from dlq.core.clock import to_micros
from dlq.core.errors import UsageError

pytestmark = pytest.mark.spark
PRODUCER = "ID:shop-36041-1795195175398-1:75:1:1"
CONSUMER = "ID:vm-33407-1795194807825-3:1:1:1"


def suppressed(number: int, **changes: Any) -> Classified:
    """A suppressed duplicate, as an analysis has classified it."""
    row = {
        "record_id": f"r{number}", "source": "legacy", "broker": "amq", "cause": "suppressed_duplicate",
        "connection_id": "ID:vm-33407-1795194807825-3:1", "consumer_id": CONSUMER, "producer_id": PRODUCER,
        "producer_seq": number, "origin": "orders", "message_id": f"{PRODUCER}:{number}", "fingerprint": "f",
    }  # fmt: skip
    return Classified(**{**dict.fromkeys(Classified._fields), **row, **changes})


def at(second: int) -> datetime:
    return datetime(2026, 11, 20, 22, 0, second, tzinfo=UTC)


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


FAILED = LAYOUTS[2].format("Transport (tcp://{}) failed, attempting")
BACK = "INFO Successfully reconnected to {}"


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    """Three layouts, a text of several lines, a line twice, one without a letter, and other lines; a packed log;
    one of .NET; and one that tells of two reconnects."""
    texts = [
        layout.format(line(n, text="first\nmessageId = ID:x\nlast")) for n, layout in enumerate(LAYOUTS, 1)
    ]
    duplicate = f"Duplicate non transacted dispatch to consumer: {CONSUMER}, poison acking: {dispatch(9)}"
    others = [
        "22:19:28 INFO Successfully reconnected to tcp://broker:61616",
        f"WARN delivering duplicate {dispatch(7)}, pending transaction completion on ID:x will rollback",
        LAYOUTS[0].format(duplicate),
        LAYOUTS[0].format(line(1)),
        line(6, consumer="ID:vm-1-1795194807825-3:1:1:2"),
        line(8, text=dispatch(666)),
    ]
    (tmp_path / "client [1].log").write_text("\n".join(texts + others))
    with gzip.open(tmp_path / "old.log.gz", "wt") as packed:
        packed.write(line(5))
    failed = "Transport failed to tcp://a:61616/, attempting to automatically reconnect due to: eof"
    net = [failed, "Successfully reconnected to: tcp://b:61616/", line_of_net(42)]
    (tmp_path / "net.log").write_text("\n".join(net))
    told = [FAILED.format("old:1"), BACK.format("tcp://old:2"), line(31)]
    told += [FAILED.format("a:61616"), BACK.format("tcp://b:61616"), line(32)]
    told += [line(33, text="x\n" + BACK + "\ny")]
    (tmp_path / "failover.log").write_text("\n".join(told))
    return log_files([str(tmp_path / "*.gz"), str(tmp_path / "client [1].log"), str(tmp_path / "[fn]*.log")])


def test_letters_and_lines_explain_each_other(spark: SparkSession, logs: list[str]) -> None:
    letters = [suppressed(n) for n in (1, 2, 3, 4, 6, 42, 32)]
    joined = {
        (row.state, (row.message_id or "").rpartition(":")[2]): row
        for row in plain_log.join(letters, client_log.lines(spark, logs).collect())
    }
    assert sorted(joined) == [
        *(("explained", n) for n in ("1", "2", "3", "32", "42")),
        *(("letters_without_line", n) for n in ("4", "6")),
        *(("lines_without_letter", n) for n in ("31", "33", "5", "6", "8", "9")),
    ]
    assert joined[("letters_without_line", "4")].record_id == "r4"
    assert joined[("lines_without_letter", "9")].destination == "queue://orders"
    assert joined[("explained", "2")].time == 1795194809_002_000
    of_net = joined[("explained", "42")]
    assert (of_net.destination, of_net.time) == ("queue://orders", 1795194809_042_000)
    assert (of_net.failed_transport, of_net.reconnected_to) == ("tcp://a:61616/", "tcp://b:61616/")
    after = {n: joined[(state, n)].reconnected_to for state, n in joined if n in ("31", "32", "33")}
    assert after == {"31": "tcp://old:2", "32": "tcp://b:61616", "33": "tcp://b:61616"}


def test_plain_python_reads_the_same_of_logs(spark: SparkSession, logs: list[str]) -> None:
    by_spark = client_log.lines(spark, logs).collect()
    assert sorted(map(repr, by_spark)) == sorted(map(repr, plain.log_lines(logs)))
    assert len(by_spark) == 12


def test_the_log_tells_the_reconnects_of_a_connection_apart() -> None:
    letters = [suppressed(n) for n in (1, 2, 10_000)]
    later = to_micros(at(3).replace(hour=23))
    lines = (
        bursts.LogLine(to_micros(at(1)), "tcp://a:1", "tcp://b:1"),
        bursts.LogLine(to_micros(at(2)), "tcp://a:1", "tcp://b:1"),
        bursts.LogLine(later, "tcp://b:1", None),
    )
    members = bursts.find("amq", letters[0].connection_id or "", [*zip(letters, lines, strict=True)])
    placed = {one.letter.record_id: one for one in members}
    assert placed["r1"].burst_id == placed["r2"].burst_id != placed["r10000"].burst_id
    second = placed["r2"].standing
    assert (second.failed, second.reconnected, second.newest) == ("tcp://a:1", "tcp://b:1", 2)
    assert second.burst_from == to_micros(at(1))
    incidents = {burst.first_record_id: bursts.incident_of(burst) for burst in bursts.bursts(members)}
    one = incidents["r1"]
    assert [one[name] for name in ("start", "peak", "end")] == [*map(to_micros, (at(1), at(1), at(2)))]
    assert set(incidents) == {"r1", "r10000"}


@pytest.mark.parametrize(("cause", "connection"), [("expired", "c"), ("suppressed_duplicate", None)])
def test_other_letters_are_of_no_burst(cause: str, connection: str | None) -> None:
    letter = suppressed(5, cause=cause, connection_id=connection)
    context = Context(frozenset(), {}, {}, (), has_logs=False, span=1, looked_at=0)
    assert list(bursts.BURSTS.members([letter], context, {})) == []
    assert bursts.conclude(letter, {}, context) is letter


def test_a_packed_log_is_read_however_its_ending_is_written(spark: SparkSession, tmp_path: Path) -> None:
    for name, pack in (("a.gz", gzip.compress), ("b.GZ", gzip.compress), ("c.bz2", bz2.compress)):
        (tmp_path / name).write_bytes(pack(line(1).encode()))
    found = log_files([str(tmp_path / "*")])
    assert len(found) == len([*plain.log_lines(found)]) == client_log.lines(spark, found).count() == 3


def test_a_log_that_breaks_off_is_said(spark: SparkSession, tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(line(n) for n in range(2000)).encode())
    (tmp_path / "broken.log.gz").write_bytes(whole[: len(whole) // 2])
    broken = client_log.lines(spark, [str(tmp_path / "broken.log.gz")])
    with (
        pytest.raises(UsageError, match=r"broken\.log\.gz: it can't be read to its end"),
        client_log.readable(),
    ):
        broken.collect()
    with pytest.raises(UsageError, match=r"broken\.log\.gz: it can't be read to its end"):
        list(plain.log_lines([str(tmp_path / "broken.log.gz")]))


@pytest.mark.parametrize(("name", "why"), [
    ("none*.log", "there is no such file"), ("n" * 300, "there is no such file"), ("_hid*.log", "rename it"),
    ("*.xz", "give it unpacked"),
])  # fmt: skip
def test_a_log_that_spark_would_not_read_is_said(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "_hidden.log").write_text(line(1))
    (tmp_path / "packed.xz").write_bytes(b"")
    with pytest.raises(UsageError, match=why):
        log_files([str(tmp_path / name)])
