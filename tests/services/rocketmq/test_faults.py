"""RocketMQ brokers that die: nothing is lost, nothing comes twice, and nothing is proven that is not."""

import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple
from unittest.mock import patch

import pytest
from support.archives import letter
from support.brokers.rocketmq.broker import PORTS, RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of, on_every_version, on_newest_version
from support.brokers.rocketmq.namespace import namespace
from support.brokers.rocketmq.sending import found, is_master, outgoing, published, sent_on, shown
from support.brokers.seen import read_all
from support.sending_contract import until_it_ends
from support.waiting import eventually

from dlq.connectors.base import Evidence, Outgoing, ReadRequest, SendRequest, Target
from dlq.connectors.rocketmq import send
from dlq.connectors.rocketmq.link.message import StoredMessage, encode, parse_properties
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.connectors.rocketmq.prove.evidence import Store
from dlq.core.clock import now
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.headers.rocketmq_topics import HALF
from dlq.core.runtime import patience
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
_numbers = itertools.count(1)


class Own(NamedTuple):
    """A cluster that a test may do everything to, and names of the test's own."""

    cluster: RocketMQ
    group: str
    topic: str

    @property
    def dead(self) -> str:
        return f"%DLQ%{self.group}"

    @property
    def request(self) -> ReadRequest:
        return ReadRequest(Source("s", "pay", group=self.group), "drain", "p")

    def create_topic(self, connector: RocketConnector, *nodes: str, queues: int = 1) -> None:
        """The topic on these brokers, or all; the name server knows it there."""
        where = nodes or tuple(self.cluster.addresses)
        for node in where:
            driver = Driver(self.cluster.addresses[node])
            driver.create_topic(self.topic, queues)
            driver.close()
        eventually(lambda: connector.cluster.route(self.topic).keys() == {*where})

    def fill(self, node: str, count: int) -> None:
        """Dead letters on one broker."""
        driver, body = Driver(self.cluster.addresses[node]), os.urandom(1000)
        driver.create_topic(self.dead)
        driver.send_many(self.dead, count, lambda i: (body, {"UNIQ_KEY": unique_key(), "n": f"{node}-{i}"}))
        eventually(lambda: driver.end(self.dead) == count)
        driver.close()


def own(cluster: RocketMQ) -> Own:
    number = next(_numbers)
    return Own(cluster, f"pay-{number}", f"orders-{number}")


@pytest.fixture(scope="module")
def one_broker(rocket_version: str) -> Iterator[RocketMQ]:
    with RocketMQ(rocket_version) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_brokers(rocket_version: str) -> Iterator[RocketMQ]:
    with RocketMQ(rocket_version, nodes=2) as cluster:
        yield cluster


@pytest.fixture
def one(one_broker: RocketMQ) -> Iterator[Own]:
    with one_broker.in_use():
        yield own(one_broker)


@pytest.fixture
def two(two_brokers: RocketMQ) -> Iterator[Own]:
    with two_brokers.in_use():
        yield own(two_brokers)


@on_every_version
def test_a_broker_killed_in_mid_pull_is_drained_to_the_end_after_its_restart(one: Own) -> None:
    cluster = one.cluster
    one.fill("broker-a", 8000)
    connector = connector_of(cluster)
    offsets: list[int] = []
    resume: dict[str, int] = {}
    reading = connector.read(one.request)

    def read_and_kill() -> None:
        for batch in reading.batches():
            offsets.extend(int(record.offset or 0) for record in batch.records)
            resume.update(batch.checkpoint)
            if offsets:
                cluster.kill("broker-a")

    with pytest.raises(ConnectionLost):
        read_and_kill()
    reading.close()
    assert 0 < len(offsets) < 8000
    with pytest.raises(BrokerError):
        connector.read(one.request)
    cluster.start_node("broker-a")
    rest = read_all(connector, replace(one.request, resume=resume))
    offsets += [int(record.offset or 0) for record in rest.records]
    assert offsets == list(range(8000))
    connector.close()


@on_every_version
def test_a_store_that_was_replaced_and_has_grown_as_far_is_read_from_its_start(one: Own) -> None:
    cluster = one.cluster
    one.fill("broker-a", 20)
    connector = connector_of(cluster)
    first = read_all(connector, one.request)
    cluster.kill("broker-a")
    shutil.rmtree(cluster.folder / "broker-a")
    cluster.start_node("broker-a")
    one.fill("broker-a", 30)
    second = read_all(connector, replace(one.request, resume=first.checkpoint))
    assert [record.offset for record in second.records] == list(range(30))
    assert not second.complete
    assert any("begun anew" in note for note in second.notes)
    third = read_all(connector, replace(one.request, resume={**first.checkpoint, **second.checkpoint}))
    assert (third.records, third.complete, third.notes[:-1]) == ([], True, [])
    connector.close()


@on_every_version
def test_a_store_that_was_lost_and_has_no_letter_since_is_told_once(two: Own) -> None:
    cluster = two.cluster
    for node in cluster.addresses:
        two.fill(node, 3)
    connector = connector_of(cluster)
    first = read_all(connector, two.request)
    cluster.kill("broker-b")
    shutil.rmtree(cluster.folder / "broker-b")
    cluster.start_node("broker-b")
    eventually(lambda: {*cluster.registered()} == {*cluster.addresses})
    second = read_all(connector, replace(two.request, resume=first.checkpoint))
    assert (second.records, second.complete) == ([], False)
    assert [gap[:3] for gap in second.gaps] == [(f"{two.dead}@broker-b:0", 3, None)]
    assert any("lost its store" in note for note in second.notes)
    resume = {**first.checkpoint, **second.checkpoint}
    third = read_all(connector, replace(two.request, resume=resume))
    assert (third.records, third.gaps, third.complete) == ([], [], True)
    two.fill("broker-b", 5)
    later = read_all(connector, replace(two.request, resume={**resume, **third.checkpoint}))
    assert [record.offset for record in later.records] == [*range(5)]
    assert (later.gaps, later.complete) == ([], True)
    connector.close()


@on_every_version
def test_a_cluster_of_two_is_read_on_both_and_says_when_one_is_gone(two: Own) -> None:
    cluster = two.cluster
    for node in cluster.addresses:
        two.fill(node, 300)
    connector = connector_of(cluster)
    seen = read_all(connector, two.request)
    assert {(record.broker_node, record.offset) for record in seen.records} == {
        (node, offset) for node in ("broker-a", "broker-b") for offset in range(300)
    }
    assert len(seen.records) == len({record.record_id for record in seen.records}) == 600
    assert seen.reached == {f"{two.dead}@broker-a:0": 300, f"{two.dead}@broker-b:0": 300}
    cluster.kill("broker-b")
    eventually(lambda: set(cluster.registered()) == {"broker-a"})
    without = read_all(connector, replace(two.request, resume=seen.checkpoint))
    assert not without.complete
    assert any("broker-b was read by an earlier pull" in note for note in without.notes)
    connector.close()


@on_newest_version
def test_a_broker_whose_slave_alone_is_there_makes_the_reading_incomplete(rocket_version: str) -> None:
    cluster = RocketMQ(rocket_version, nodes=2)
    with (cluster.folder / "broker-b.conf").open("a") as configuration:
        configuration.write("brokerId=1\nbrokerRole=SLAVE\n")
    with cluster:
        mine = own(cluster)
        mine.fill("broker-a", 3)
        connector = connector_of(cluster)
        seen = read_all(connector, mine.request)
        assert (len(seen.records), seen.complete) == (3, False)
        assert any("the master of broker-b is down" in note for note in seen.notes)
        assert any("broker-b" in warning for warning in connector.inspect(mine.request.source).warnings)
        connector.close()


@on_every_version
def test_replays_cut_by_a_kill_are_in_doubt_and_found_after_the_restart(one: Own) -> None:
    cluster, target = one.cluster, Target("topic", one.topic)
    one.fill("broker-a", 1)
    connector = connector_of(cluster)
    one.create_topic(connector)
    (record,) = read_all(connector, one.request).records
    letters = outgoing(
        (record._replace(properties={"n": str(i)}, raw_properties=None) for i in range(5000)), target
    )
    before, since = connector.bounds([target]), now()

    def given() -> Iterator[Outgoing]:
        for one_more in letters:
            if one_more.number == 3000:
                cluster.kill("broker-a")
            yield one_more

    publisher = connector.publisher(SendRequest("plan", 256))
    answers, error = until_it_ends(publisher, given())
    assert isinstance(error, ConnectionLost)
    outcomes = {answer.number: answer.outcome for answer in answers}
    assert set(outcomes.values()) == {"confirmed", "in_doubt"}
    doubtful = [each for each in letters if outcomes.get(each.number) == "in_doubt"]
    assert 0 < len(doubtful) <= 257
    cluster.start_node("broker-a")
    proof = found(connector, doubtful, before, since).shown
    [(first, began)] = [item for item in before.items() if item[0].startswith("broker-a#first")]
    elsewhere = shown(connector, doubtful, {**before, first: began - 1})
    assert "not_sent" not in elsewhere, "a store that began with another message proves no absence"
    messages = Driver(cluster.addresses["broker-a"]).messages(one.topic)
    whole = [m.properties for m in messages if b"\0" not in m.properties]
    stored = {int(parse_properties(properties)["n"]) for properties in whole}
    is_cut = len(whole) < len(messages)  # the kill fell into the writing of a message, and all have one body
    assert {number for number, presence in proof.items() if presence == "sent"} == stored & set(proof)
    assert set(proof.values()) <= {"sent", "unknown" if is_cut else "not_sent"}
    assert {number for number, outcome in outcomes.items() if outcome == "confirmed"} <= stored
    connector.close()


@on_newest_version
def test_without_an_index_replays_are_found_or_proven_absent_all_the_same(rocket_version: str) -> None:
    unhurried = {"transactionTimeOut": 600_000, "transactionCheckInterval": 600_000}
    with RocketMQ(rocket_version, messageIndexEnable="false", **unhurried) as cluster:
        mine = own(cluster)
        mine.fill("broker-a", 1)
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic(mine.topic)
        for _ in range(2):
            driver.half(mine.topic, b"x")
        eventually(lambda: driver.end(HALF) == 2)
        connector = connector_of(cluster)
        (record,) = read_all(connector, mine.request).records
        transactions = Source("s", "pay", transactions=True)
        halves = read_all(connector, replace(mine.request, source=transactions)).records
        orders, resume = Target("topic", mine.topic), Target("resume", mine.topic)
        before = connector.bounds([orders, resume])
        letters = [
            one._replace(target=target)
            for one, target in zip(
                outgoing([record, record, *halves], orders), [orders, orders, resume, resume], strict=True
            )
        ]
        assert {sent.outcome for sent in published(connector, letters[::2], window=1)} == {"confirmed"}
        assert shown(connector, letters, before) == ["sent", "not_sent", "sent", "not_sent"]
        connector.close()


@on_every_version
def test_not_sent_needs_the_word_of_every_broker_that_could_have_taken_it(two: Own) -> None:
    """A broker that is gone is in no route any more, and a letter's own may be known under another name."""
    cluster = two.cluster
    for node in cluster.addresses:
        two.fill(node, 1)
    here, connector = f"{two.topic}-here", connector_of(cluster)
    two.create_topic(connector)
    two._replace(topic=here).create_topic(connector, "broker-a")
    records = read_all(connector, two.request).records
    kinds = [Target("topic", two.topic), Target("resume", two.topic), Target("topic", here)]
    letters = [
        Outgoing(i, record._replace(broker=broker), target, {"dlq_replay_id": f"{i:032x}"})
        for i, (target, record, broker) in enumerate(itertools.product(kinds, records, ("pay", "renamed")))
    ]
    before = connector.bounds(kinds)
    assert shown(connector, letters, before) == ["not_sent"] * 12
    cluster.kill("broker-b")
    eventually(lambda: set(cluster.registered()) == {"broker-a"})
    assert shown(connector, letters, before) == ["unknown"] * 8 + ["not_sent"] * 4
    doubts = found(connector, letters, before).doubts
    assert any("broker-b, which took messages" in why for why in doubts)
    connector.close()


@on_newest_version
def test_a_slave_that_was_promoted_says_nothing_of_what_its_master_took(rocket_version: str) -> None:
    """It has what its master had when it followed last, in the same place, and not what came later."""
    with RocketMQ(rocket_version) as cluster:
        mine, target = own(cluster), Target("topic", "orders")
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        mine.fill("broker-a", 2)
        cluster.start_slave("broker-s")
        slave = Driver(cluster.addresses["broker-s"])
        eventually(lambda: slave.end(mine.dead) == 2)
        slave.close()
        cluster.kill("broker-s")
        connector = connector_of(cluster)
        record = read_all(connector, mine.request).records[0]
        before, letters = connector.bounds([target]), outgoing([record] * 3, target)
        assert {sent.outcome for sent in published(connector, letters[:2])} == {"confirmed"}
        eventually(lambda: driver.end("orders") == 2)
        assert shown(connector, letters, before) == ["sent", "sent", "not_sent"]
        cluster.kill("broker-a")
        eventually(lambda: not cluster.registered())
        cluster.promote("broker-s")
        eventually(lambda: is_master(connector))
        proof = found(connector, letters, before)
        assert proof.shown == dict.fromkeys(range(3), "unknown")
        was, now_is = (cluster.addresses[node] for node in ("broker-a", "broker-s"))
        assert any(was in why and now_is in why for why in proof.doubts), proof.doubts
        publisher = connector.publisher(SendRequest("plan", 64))
        publisher.close()
        cluster.kill("broker-s")
        eventually(lambda: not cluster.registered())
        cluster.start_node("broker-a")
        taken_meanwhile = shown(connector, letters, {**publisher.anchor, **before})
        assert taken_meanwhile == ["sent", "sent", "unknown"], "the slave may have taken it meanwhile"
        assert shown(connector, letters, before) == ["sent", "sent", "not_sent"]
        connector.close()


@on_every_version
@pytest.mark.parametrize(("count", "lost"), [(1, "UNIQ_KEY"), (3, "KEYS")])
def test_a_half_written_message_is_neither_sent_nor_not_sent(one: Own, count: int, lost: str) -> None:
    """Its properties are zeros from somewhere on: a kill at the border of a page leaves that."""
    cluster = one.cluster
    one.fill("broker-a", 1)
    driver, target = Driver(cluster.addresses["broker-a"]), Target("topic", one.topic)
    connector = connector_of(cluster)
    one.create_topic(connector)
    (record,) = read_all(connector, one.request).records
    records = [
        record._replace(
            body=b"%d" % i, raw_properties=None, properties={"UNIQ_KEY": unique_key(), "TAGS": "t"}
        )
        for i in range(count + 1)
    ]
    letters = [
        each._replace(provenance={"dlq_replay_id": f"{each.number:032x}", "KEYS": "k" * 20})
        for each in outgoing(records, target)
    ]
    before = connector.bounds([target])
    assert {sent.outcome for sent in published(connector, letters[:count])} == {"confirmed"}
    torn = driver.newest(one.topic, count=count)[-1]
    cluster.kill("broker-a")
    tear(cluster.folder / "broker-a" / "commitlog", torn, lost.encode())
    cluster.start_node("broker-a")
    assert b"\0" in Driver(cluster.addresses["broker-a"]).newest(one.topic, count=count)[-1].properties
    proof = found(connector, letters, before)
    last = int(torn.body)
    assert proof.shown == {
        n: "unknown" if n == last else "not_sent" if n == count else "sent" for n in range(count + 1)
    }
    (why,) = proof.doubts
    assert f"offset {torn.queue_offset} is cut" in why
    connector.close()


@on_newest_version
def test_what_is_stored_less_safely_than_asked_for_is_in_doubt_and_ends_the_replay(
    rocket_version: str,
) -> None:
    with RocketMQ(rocket_version, flushDiskType="SYNC_FLUSH") as cluster:
        mine, target = own(cluster), Target("topic", "orders")
        mine.fill("broker-a", 1)
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        driver.set("syncFlushTimeout", 0)
        connector = connector_of(cluster)
        (record,) = read_all(connector, mine.request).records
        before, letters = connector.bounds([target]), outgoing([record] * 1000, target)
        answers, error = until_it_ends(connector.publisher(SendRequest("plan", 64)), iter(letters))
        assert "disk was not flushed in time; nothing more is sent" in str(error)
        # A disk that is quick enough may flush the first ones at once.
        assert {"in_doubt"} <= {answer.outcome for answer in answers} <= {"in_doubt", "confirmed"}
        assert 0 < len(answers) < 1000
        assert set(shown(connector, letters[: len(answers)], before)) == {"sent"}
        connector.close()


def ends_after(bounds: Evidence, moment: int) -> Evidence | None:
    store = Store.read(bounds, "broker-a")
    return bounds if store and store.clock > moment else None


@on_newest_version
def test_a_log_that_several_keep_proves_no_absence_until_it_shows_something_newer(
    rocket_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLedger: what its leader took without a quorum may be committed yet. Its log begins with an entry's
    header, not with a message, which is met after a restart."""
    peer = f"n0-{namespace().address}:{next(PORTS)}"
    dledger = {"dLegerGroup": "broker-a", "dLegerPeers": peer, "dLegerSelfId": "n0"}
    with RocketMQ(rocket_version, enableDLegerCommitLog="true", **dledger) as cluster:
        mine, target = own(cluster), Target("topic", "orders")
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        eventually(lambda: sent_on(cluster, "orders"))
        mine.fill("broker-a", 1)
        connector = connector_of(cluster)
        (record,) = read_all(connector, mine.request).records
        stored = (record.dead_at or 0) // 1000
        # The broker tells its clock in whole seconds, and a message of this second proves nothing of before.
        before = eventually(lambda: ends_after(connector.bounds([target]), stored))
        letters = outgoing([record] * 2, target)
        assert published(connector, letters[:1])[0].outcome == "confirmed"
        with monkeypatch.context() as patch:
            patch.setattr(patience, "CAUGHT_UP", 1)
            proof = found(connector, letters, before)
            assert proof.shown == {0: "sent", 1: "unknown"}
            assert any("keeps its log with others" in why for why in proof.doubts)
        cluster.kill("broker-a")
        cluster.start_node("broker-a")
        eventually(lambda: sent_on(cluster, "others") and is_master(connector))
        with going_on(cluster, "others"):
            assert shown(connector, letters, before) == ["sent", "not_sent"]
        connector.close()


@contextmanager
def going_on(cluster: RocketMQ, topic: str) -> Iterator[None]:
    """Somebody else sends meanwhile."""
    over = Event()

    def go_on() -> None:
        while not over.wait(0.2):
            sent_on(cluster, topic)

    others = Thread(target=go_on)
    others.start()
    try:
        yield
    finally:
        over.set()
        others.join()


def tear(log: Path, message: StoredMessage, lost: bytes) -> None:
    """Zeros in the commit log, from the middle of a property's name to the message's end."""
    file = min(log.iterdir())  # 5.5 makes the next one before it is needed
    with file.open("r+b") as stored:
        stored.seek(message.commit_log_offset)
        data = stored.read(len(encode(message)))
        first = data.index(lost, data.index(message.properties)) + 2
        stored.seek(message.commit_log_offset + first)
        stored.write(bytes(len(data) - first))


@on_every_version
def test_letters_go_back_to_the_broker_that_they_came_from(two: Own) -> None:
    drivers = {node: Driver(address) for node, address in two.cluster.addresses.items()}
    for node in drivers:
        two.fill(node, 20)
    connector = connector_of(two.cluster)
    two.create_topic(connector, queues=2)
    letters = outgoing(read_all(connector, two.request).records, Target("topic", two.topic))
    assert {sent.outcome for sent in published(connector, letters, window=8)} == {"confirmed"}
    for node, driver in drivers.items():
        eventually(lambda it=driver: it.end(two.topic, 0) + it.end(two.topic, 1) == 20)
        messages = [m for queue in (0, 1) for m in driver.messages(two.topic, queue)]
        arrived = sorted(parse_properties(m.properties)["n"] for m in messages)
        assert arrived == sorted(f"{node}-{i}" for i in range(20))
    connector.close()


@contextmanager
def stuttering(pid: int) -> Iterator[None]:
    """Stand still again and again, so that requests have waited for long when the process looks at them."""
    over = Event()

    def stop_and_go() -> None:
        while not over.wait(0.02):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(pid, signal.SIGCONT)

    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(stop_and_go)
        try:
            yield
        finally:
            over.set()
            stopping.result()


@on_newest_version
def test_a_broker_that_is_too_busy_again_and_again_gets_every_letter_once(
    rocket_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"sendMessageThreadPoolNums": 1, "waitTimeMillsInSendQueue": 1}
    with RocketMQ(rocket_version, **slow) as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        connector = connector_of(cluster)
        body = os.urandom(70_000)  # too large to go with others
        count = 1000
        records = [
            letter(i, broker_kind="rocketmq", properties={"n": str(i)}, body=body) for i in range(count)
        ]
        letters = outgoing(records, Target("topic", "orders"))
        monkeypatch.setattr(send, "BUSY_TRIES", 2000)  # a slow machine is busy more often than 50 times
        publisher = connector.publisher(SendRequest("plan", 2000))
        to_see_it_busy = patch.object(publisher, "_send_again", wraps=publisher._send_again)
        with to_see_it_busy as again, stuttering(cluster.pid("broker-a")):
            outcomes = {sent.number: sent.outcome for sent in publisher.publish(iter(letters))}
        publisher.close()
        assert again.called
        assert outcomes == dict.fromkeys(range(count), "confirmed")
        eventually(lambda: driver.end("orders") >= count)
        stored = [int(parse_properties(m.properties)["n"]) for m in driver.messages("orders")]
        assert sorted(stored) == list(range(count))
        connector.close()
