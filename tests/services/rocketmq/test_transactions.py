"""Reading the transactions of real RocketMQ brokers, in such numbers and states as production has."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import preloaded
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import OP_BATCH_INTERVAL_MS, Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of, on_every_version
from support.brokers.seen import Seen, read_all
from support.rows import each_row
from support.waiting import eventually

from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import ReadRequest
from dlq.core.headers.rocketmq_topics import HALF, OP_TOPIC
from dlq.core.settings import Source

pytestmark = [pytest.mark.rocketmq, on_every_version]
REQUEST = ReadRequest(Source("tx", "pay", transactions=True), "drain", "p")
TOPIC = "orders"


@pytest.fixture(scope="module")
def unhurried(rocket_version: str) -> Iterator[RocketMQ]:
    """A broker that checks no half message while a test looks at it. What other tests have left there comes
    in a first reading."""
    with RocketMQ(rocket_version, transactionTimeOut=600_000, transactionCheckInterval=600_000) as cluster:
        yield cluster


@pytest.fixture
def driver(unhurried: RocketMQ) -> Iterator[Driver]:
    """A connection to that broker, which has the topic of the tests."""
    driver = Driver(unhurried.addresses["broker-a"])
    driver.create_topic(TOPIC)
    yield driver
    driver.close()


def test_an_outcome_after_the_half_message_was_captured_is_found_before_the_first_check(
    unhurried: RocketMQ, driver: Driver
) -> None:
    connector = connector_of(unhurried)
    before, end = read_all(connector, REQUEST), driver.end(HALF)
    half = driver.half(TOPIC, b"x")
    eventually(lambda: driver.end(HALF) > end)
    first = read_all(connector, replace(REQUEST, resume=before.checkpoint))
    driver.finish(half, commit=True)  # 5.5 writes no op record yet, and takes its time on a slow machine

    def read_again() -> Seen | None:
        began = time.monotonic()
        seen = read_all(connector, replace(REQUEST, resume=first.checkpoint))
        assert time.monotonic() - began >= OP_BATCH_INTERVAL_MS / 1000, "what is gathered is waited for"
        return seen if seen.records else None

    second = eventually(read_again)
    connector.close()
    assert second is not None
    assert [record.message_id for record in first.records] == [half.key]
    assert {record.dead_letter_queue for record in second.records} == {OP_TOPIC, TOPIC}


def test_half_messages_that_lie_in_rocksdb_alone_make_a_reading_incomplete(rocket_version: str) -> None:
    has_rocksdb = rocket_version >= "5"
    settings = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
    with RocketMQ(rocket_version, **(settings if has_rocksdb else {})) as cluster:
        driver, connector = Driver(cluster.addresses["broker-a"]), connector_of(cluster)
        driver.create_topic(TOPIC)
        driver.half(TOPIC, b"x")
        eventually(lambda: has_rocksdb or driver.end(HALF))
        seen, inspection = read_all(connector, REQUEST), connector.inspect(REQUEST.source)
        connector.close()
    assert any(record.dead_letter_queue == HALF for record in seen.records) != has_rocksdb
    assert seen.complete != has_rocksdb
    assert any("in RocksDB alone" in warning for warning in inspection.warnings) == has_rocksdb


def test_a_transaction_that_ended_where_nothing_tells_how_is_ended(
    rocket_version: str, tmp_path: Path
) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    """One that was committed is found in its queue all the same, if it has a key."""
    keyless = {"UNIQ_KEY": ""}
    with RocketMQ(rocket_version, transactionCheckInterval=600_000, messageIndexEnable="false") as cluster:
        driver, connector = Driver(cluster.addresses["broker-a"]), connector_of(cluster)
        driver.create_topic(TOPIC)
        driver.finish_at_once(driver.half(TOPIC, b"x"), commit=True)
        driver.finish_at_once(driver.half(TOPIC, b"y", keyless), commit=False)
        eventually(lambda: driver.end(OP_TOPIC) and driver.end(TOPIC))
        pull(store, connector, REQUEST.source, PullOptions("drain"))
        connector.close()
    preloaded.analyze(store.location)
    look = views.connect(store).execute
    states = look("SELECT state, discarded FROM transactions ORDER BY state").fetchall()
    assert states == [("committed", False), ("ended", False)]
    letters = look("SELECT cause, transaction_state, advice FROM letters WHERE cause IS NOT NULL").fetchall()
    assert letters == [("unknown", "ended", "check_first")]
    (told,) = look("SELECT count(*) FROM transactions WHERE evidence LIKE '%keeps no index%'").fetchall()
    assert told == (1,)


@each_row("most", [500_000, 0])
def test_an_index_that_lacks_a_real_message_proves_no_rollback(
    unhurried: RocketMQ, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """It may have stopped growing. Where the queue cannot be looked through to its end, nothing tells."""
    monkeypatch.setattr("dlq.connectors.rocketmq.read.outcomes.by_unique_key", lambda *_: iter(()))
    monkeypatch.setattr("dlq.connectors.rocketmq.read.commits.MOST_COMMITS", most)
    store, topic = LocalStore(str(tmp_path / f"{most}")), f"{TOPIC}-{most}"
    driver.create_topic(topic)
    halves = [driver.half(topic, b"%d" % n) for n in range(4)]
    for number, half in enumerate(halves):
        driver.finish_at_once(half, commit=number < 2)
    eventually(lambda: driver.end(topic) == 2)
    said = list[bool]()
    for _ in range(2):  # what the first has not learned the second does not know either
        connector = connector_of(unhurried)
        notes = pull(store, connector, REQUEST.source, PullOptions("drain")).notes
        said.append(any("could not be looked through to the end" in note for note in notes))
        connector.close()
    assert said == [not most, False]
    preloaded.analyze(store.location)
    mine = f"SELECT state FROM transactions WHERE topic = '{topic}' ORDER BY state"
    states = [state for (state,) in views.connect(store).execute(mine).fetchall()]
    assert states == (["committed"] * 2 + ["rolled_back"] * 2 if most else ["ended"] * 4)


def test_more_half_messages_than_a_batch_holds_come_with_their_outcomes(
    unhurried: RocketMQ, driver: Driver
) -> None:
    connector = connector_of(unhurried)
    before, half_end, op_end = read_all(connector, REQUEST), driver.end(HALF), driver.end(OP_TOPIC)
    halves = [driver.half(TOPIC, b"x") for _ in range(50)]
    offsets = "".join(f"{half.offset}," for half in halves)
    driver.set("transactionOpBatchInterval", 3_600_000)  # since the last one was written
    driver.set("transactionOpMsgMaxSize", len(offsets) - 1)  # 5.5 writes when it has gathered more
    for half in halves:
        driver.finish(half, commit=True)
    own = {"TRAN_MSG": "true", "PGROUP": "tx-producers"}
    driver.send_many(TOPIC, 5_000, lambda _: (b"x", {**own, "UNIQ_KEY": unique_key()}), f=4, a="tx-producers")
    eventually(lambda: driver.end(HALF) == half_end + 5_050 and driver.end(OP_TOPIC) > op_end)
    driver.set("transactionOpBatchInterval", OP_BATCH_INTERVAL_MS)
    seen = read_all(connector, replace(REQUEST, resume=before.checkpoint))
    connector.close()
    topics = [record.dead_letter_queue for record in seen.records]
    ended = [record.body for record in seen.records if record.dead_letter_queue == OP_TOPIC]
    assert (topics.count(HALF), topics.count(TOPIC)) == (5_050, 50)
    assert seen.batches[-1].position == seen.snapshot == 5_050 + len(ended), "without those beside it"
    assert ended == (
        [offsets.encode()] if unhurried.version >= "5" else [b"%d" % half.offset for half in halves]
    )
