"""RocketMQ brokers that die: nothing is lost, nothing comes twice, and nothing is proven that is not."""

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver, eventually, unique_key
from support.brokers.rocketmq.fixtures import connector_of, on_every_version, read_all

from dlq.connectors.base import Outgoing, ReadRequest, Target
from dlq.connectors.rocketmq.find import runtime_facts
from dlq.connectors.rocketmq.message import parse_properties
from dlq.core.clock import now
from dlq.core.errors import BrokerError, ConnectionLost, Unreachable
from dlq.core.rocketmq_topics import HALF
from dlq.core.settings import Source

pytestmark = [pytest.mark.rocketmq, on_every_version]
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

    def fill(self, node: str, count: int) -> None:
        """Dead letters on one broker."""
        driver, body = Driver(self.cluster.addresses[node]), os.urandom(1000)
        driver.create_topic(self.dead)
        driver.send_many(self.dead, count, lambda i: (body, {"UNIQ_KEY": unique_key(), "n": f"{node}-{i}"}))
        eventually(lambda: driver.end(self.dead) == count)
        driver.close()


def own(cluster: RocketMQ) -> Own:
    cluster.revive()
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
def one(one_broker: RocketMQ) -> Own:
    return own(one_broker)


@pytest.fixture
def two(two_brokers: RocketMQ) -> Own:
    return own(two_brokers)


def test_a_broker_killed_in_mid_pull_is_drained_to_the_end_after_its_restart(one: Own) -> None:
    cluster = one.cluster
    one.fill("broker-a", 20_000)
    connector = connector_of(cluster, timeout="3s")
    found: list[int] = []
    resume: dict[str, int] = {}
    reading = connector.read(one.request)

    def read_and_kill() -> None:
        for batch in reading.batches():
            found.extend(int(record.offset or 0) for record in batch.records)
            resume.update(batch.checkpoint)
            cluster.kill("broker-a")

    with pytest.raises(ConnectionLost):
        read_and_kill()
    reading.close()
    assert 0 < len(found) < 20_000
    with pytest.raises(BrokerError):
        connector.read(one.request)
    cluster.start_node("broker-a")
    rest = read_all(connector, ReadRequest(one.request.source, "drain", "p", resume=resume))
    found += [int(record.offset or 0) for record in rest.records]
    assert found == list(range(20_000))
    connector.close()


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
    eventually(lambda: set(cluster._registered()) == {"broker-a"}, 60)
    without = read_all(connector, ReadRequest(two.request.source, "drain", "p", resume=seen.checkpoint))
    assert not without.complete
    assert any("broker-b was read by an earlier pull" in note for note in without.notes)
    connector.close()


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


def test_replays_cut_by_a_kill_are_in_doubt_and_found_after_the_restart(one: Own) -> None:
    cluster = one.cluster
    one.fill("broker-a", 1)
    driver = Driver(cluster.addresses["broker-a"])
    driver.create_topic(one.topic)
    connector = connector_of(cluster, timeout="3s")
    (record,) = read_all(connector, one.request).records
    letters = [
        Outgoing(
            i,
            record._replace(properties={"n": str(i)}, raw_properties=None),
            Target("topic", one.topic),
            {"dlq_replay_id": f"{i:032x}", "dlq_replay_lap": "1", "dlq_replay_of": "0"},
        )
        for i in range(5000)
    ]
    eventually(lambda: connector.consumers([Target("topic", one.topic)]) == {})
    since = now()

    def given() -> Iterator[Outgoing]:
        for letter in letters:
            if letter.number == 3000:
                cluster.kill("broker-a")
            yield letter

    publisher = connector.publisher("plan", 256)
    outcomes: dict[int, str] = {}

    def publish() -> None:
        for sent in publisher.publish(given()):
            outcomes[sent.number] = sent.outcome

    with pytest.raises(ConnectionLost):
        publish()
    publisher.close()
    assert set(outcomes.values()) == {"confirmed", "in_doubt"}
    doubtful = [letter for letter in letters if outcomes.get(letter.number) == "in_doubt"]
    assert 0 < len(doubtful) <= 257
    cluster.start_node("broker-a")
    eventually(lambda: runtime_facts(connector._cluster, "broker-a"))  # 4.9 has none for some seconds
    found = connector.find("plan", doubtful, since)
    assert set(found.values()) <= {"sent", "not_sent"}
    assert set(connector.find("plan", doubtful, 3_600_000_000).values()) <= {"sent", "unknown"}, (
        "a store that does not go back to the time of the first send proves no absence"
    )
    driver = Driver(cluster.addresses["broker-a"])
    # A kill may fall into the writing of a message: 5.5 keeps it, the rest of its properties zeros.
    whole = [m.properties for m in driver.messages(one.topic) if b"\0" not in m.properties]
    stored = {int(parse_properties(properties)["n"]) for properties in whole}
    assert {number for number, presence in found.items() if presence == "sent"} == stored & set(found)
    assert {number for number, outcome in outcomes.items() if outcome == "confirmed"} <= stored
    connector.close()


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
        connector, since = connector_of(cluster), now()
        (record,) = read_all(connector, mine.request).records
        halves = read_all(
            connector, replace(mine.request, source=Source("s", "pay", transactions=True))
        ).records
        orders, resume = Target("topic", mine.topic), Target("resume", mine.topic)
        letters = [
            Outgoing(i, letter, target, {"dlq_replay_id": f"{i:032x}"})
            for i, (letter, target) in enumerate(
                [(record, orders), (record, orders), (halves[0], resume), (halves[1], resume)]
            )
        ]
        publisher = connector.publisher("plan", 1)
        assert {sent.outcome for sent in publisher.publish(iter(letters[::2]))} == {"confirmed"}
        publisher.close()
        assert connector.find("plan", letters, since) == {0: "sent", 1: "not_sent", 2: "sent", 3: "not_sent"}
        connector.close()


def test_a_broker_that_is_gone_leaves_its_letters_unknown_and_theirs_alone(two: Own) -> None:
    cluster = two.cluster
    for node in cluster.addresses:
        two.fill(node, 1)
        Driver(cluster.addresses[node]).create_topic(two.topic)
    connector = connector_of(cluster)
    records = read_all(connector, two.request).records
    halves = [
        record._replace(headers={**record.headers, "storeHost": cluster.addresses[str(record.broker_node)]})
        for record in records
    ]
    letters = [
        Outgoing(i, record, target, {"dlq_replay_id": f"{i:032x}"})
        for i, (record, target) in enumerate(
            [
                *((r, Target("topic", two.topic)) for r in records),
                *((h, Target("resume", two.topic)) for h in halves),
            ]
        )
    ]
    assert connector.find("plan", letters, now()) == dict.fromkeys(range(4), "not_sent")
    cluster.kill("broker-b")
    eventually(lambda: set(cluster._registered()) == {"broker-a"}, 60)
    assert connector.find("plan", letters, now()) == {
        0: "not_sent",
        1: "unknown",
        2: "not_sent",
        3: "unknown",
    }
    connector.close()


def test_letters_go_back_to_the_broker_that_they_came_from(two: Own) -> None:
    cluster = two.cluster
    drivers = {node: Driver(address) for node, address in cluster.addresses.items()}
    for node, driver in drivers.items():
        two.fill(node, 20)
        driver.create_topic(two.topic, queues=2)
    connector = connector_of(cluster)
    records = read_all(connector, two.request).records
    provenance = {"dlq_replay_lap": "1", "dlq_replay_of": "0"}
    publisher = connector.publisher("plan", 8)
    outgoing = (
        Outgoing(i, record, Target("topic", two.topic), {"dlq_replay_id": f"{i:032x}", **provenance})
        for i, record in enumerate(records)
    )
    assert {sent.outcome for sent in publisher.publish(outgoing)} == {"confirmed"}
    publisher.close()
    for node, driver in drivers.items():
        eventually(lambda it=driver: it.end(two.topic, 0) + it.end(two.topic, 1) == 20)
        arrived = [
            parse_properties(m.properties)["n"] for queue in (0, 1) for m in driver.messages(two.topic, queue)
        ]
        assert sorted(arrived) == sorted(f"{node}-{i}" for i in range(20))
    connector.close()


def test_name_servers_and_masters_that_are_down_are_unreachable(one: Own) -> None:
    cluster = one.cluster
    cluster.kill("broker-a")
    eventually(lambda: not cluster._registered(), 60)
    connector = connector_of(cluster, timeout="2s")
    with pytest.raises(Unreachable, match="no RocketMQ broker is registered"):
        connector.read(one.request)
    cluster.kill("namesrv")
    with pytest.raises(Unreachable, match="no name server of pay answers"):
        connector.read(one.request)
    connector.close()
