"""Consumers of other hands, in Java and by gRPC: how their letters die, and come back."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rocketmq.broker import PROGRAMS, RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import Rocket, connector_of
from support.brokers.rocketmq.install import VERSIONS, has_proxy
from support.brokers.rocketmq.sending import outgoing, published, sent_back
from support.brokers.seen import read_all
from support.jvm import compiled
from support.waiting import PATIENCE, eventually

from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Outgoing, ReadRequest, Target
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.core.headers.rocketmq_topics import OP_TOPIC
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
TEXTS = {name: (PROGRAMS / f"{name}.java").read_text() for name in ("RocketFailing", "RocketUndecided")}
WAYS = ("send_back", "fallback", "orderly")


@contextmanager
def running(cluster: RocketMQ, program: str, *arguments: str) -> Iterator[None]:
    """A program beside the brokers that uses the client of the brokers' version."""
    classes = compiled(TEXTS, f"{cluster.jars}/*")
    command = cluster.java(program, cluster.name_server, *arguments, classes=str(classes))
    process = subprocess.Popen(command, cwd=cluster.folder, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE)


def analyzed(rocket: Rocket, store: LocalStore, source: Source, query: str) -> list[tuple[Any, ...]]:
    pull(store, rocket.connector, source, PullOptions("drain"))
    preloaded.analyze(store.location)
    return views.connect(store).execute(query).fetchall()


def dead(rocket: Rocket, way: str, count: int = 1) -> Record:
    """The newest dead letter of one group, as soon as there are so many."""
    group = f"{rocket.group}-{way}"
    eventually(lambda: len(rocket.driver.messages(f"%DLQ%{group}")) >= count)
    return rocket.read(source=Source("dead", "pay", group=group)).records[-1]


def committed(rocket: Rocket, way: str) -> int:
    """How far a group says that it has read its retry topic; brokers hear it every 5 s."""
    group = f"{rocket.group}-{way}"
    place = {"consumerGroup": group, "topic": f"%RETRY%{group}", "queueId": 0}
    return int(rocket.driver.link.call(RequestCode.CONSUMER_OFFSET, place).fields.get("offset", 0))


def test_messages_of_java_consumers_die_by_send_back_by_fallback_and_in_order(
    rocket: Rocket, tmp_path: Path
) -> None:
    rocket.driver.send(rocket.topic, b"x", {"UNIQ_KEY": unique_key()})
    with running(rocket.cluster, "RocketFailing", rocket.topic, rocket.group):
        for way in WAYS:
            dead(rocket, way)
            rocket.wait_for_routes(f"%DLQ%{rocket.group}-{way}")
    columns = "origin_group, mechanism, cause, origin, attempts"
    source = Source("dead", "pay", group=f"{rocket.group}-*")
    query = f"SELECT {columns} FROM letters ORDER BY origin_group"
    # 4.x counts up to the limit of one, where 5.x goes beyond it.
    counted = 1 if rocket.cluster.version.startswith("4") else 2
    assert analyzed(rocket, LocalStore(str(tmp_path / "archive")), source, query) == [
        (f"{rocket.group}-{way}", mechanism, "redelivery_exhausted", rocket.topic, attempts)
        for way, mechanism, attempts in (
            ("fallback", "client_fallback", counted),
            ("orderly", "client_fallback", counted),
            ("send_back", "send_back", 2),
        )
    ]


def test_a_replay_to_the_group_alone_reaches_its_consumer_and_waits_for_one_that_is_stopped(
    rocket: Rocket,
) -> None:
    """What its listener sees is what it saw the first time, and at the retry after that."""
    told = {"UNIQ_KEY": unique_key(), "KEYS": "k1 k2", "TAGS": "t", "user": "u"}
    rocket.driver.send(rocket.topic, b"x", told, h=7, g=1_600_000_000_000)
    with running(rocket.cluster, "RocketFailing", rocket.topic, rocket.group):
        for way in ("send_back", "fallback"):
            letter = sent_back(rocket.connector, dead(rocket, way), "group")
            replay_id = letter.provenance["dlq_replay_id"]
            assert dead(rocket, way, count=2).properties["dlq_replay_id"] == replay_id
        problem = rocket.connector.preview(
            Outgoing(0, dead(rocket, "orderly"), Target("group", "g"), {})
        ).problem
        eventually(lambda: committed(rocket, "send_back"))
    assert "in order" in str(problem)
    seen = (rocket.cluster.folder / f"{rocket.topic}.seen").read_text().splitlines()
    message = [rocket.topic, "t", "k1 k2", told["UNIQ_KEY"], "7", "1600000000000", "x"]
    assert [one.split("\t")[:8] for one in seen] == [[*message, times] for times in "0101"]
    first, retry, again, _ = (set(one.split("\t")[8].split()) for one in seen)
    ours = {name for name in again if name.startswith("dlq_replay_")}
    assert again - ours - first == {"RETRY_TOPIC"} < retry
    assert first <= again
    assert sent_back(rocket.connector, dead(rocket, "send_back"), "group")


def test_a_check_that_reached_its_producer_is_told(rocket: Rocket, tmp_path: Path) -> None:
    source = Source("tx", "pay", transactions=True)
    query = f"""SELECT state, check_reached_producer, checks > 0 FROM transactions
        WHERE topic = '{rocket.topic}' ORDER BY state"""
    before = rocket.driver.end(OP_TOPIC)
    with running(rocket.cluster, "RocketUndecided", rocket.topic):
        with rocket.driver.gathering_nothing(), rocket.driver.asking_for_ever():
            eventually(lambda: rocket.driver.end(OP_TOPIC) >= before + 2)
        found = analyzed(rocket, LocalStore(str(tmp_path / "archive")), source, query)
    assert found == [("committed", "yes", True), ("rolled_back", "yes", True)]


FORGETFUL = PROGRAMS / "RocketForgetful.java"
TOPIC, GROUP = "orders", "pay"
DEAD = f"%DLQ%{GROUP}"
SOURCE = Source("dead", "pay", group=GROUP)


def let_die(cluster: RocketMQ, key: str) -> None:
    """Send a message to a gRPC consumer that never acknowledges."""
    driver = Driver(cluster.addresses["broker-a"])
    driver.create_topic(TOPIC)
    driver.create_group(GROUP, retries=0)
    driver.send(TOPIC, b"forgotten", {"UNIQ_KEY": key, "KEYS": "order-7"})
    cluster.grpc(FORGETFUL, cluster.start_proxy(), GROUP, TOPIC)
    eventually(lambda: driver.messages(DEAD))
    cluster.kill(FORGETFUL.stem)  # or it lets die what comes next, too
    driver.close()


def letter_without_a_trace(cluster: RocketMQ, connector: RocketConnector) -> Record:
    """What dies at its first failure was in no retry topic: nothing in it tells of gRPC."""
    driver = Driver(cluster.addresses["broker-a"])
    driver.dead_letter(TOPIC, GROUP, b"at once")
    driver.close()
    return read_all(connector, ReadRequest(SOURCE, "copy", "p")).records[-1]


@pytest.mark.parametrize("version", list(filter(has_proxy, VERSIONS)))
def test_a_grpc_consumers_letter_is_known_by_its_retry_topic(version: str, tmp_path: Path) -> None:
    key, store = unique_key(), LocalStore(str(tmp_path / "archive"))
    with RocketMQ(version, timerWheelEnable="true") as cluster:  # without it there is no POP
        let_die(cluster, key)
        connector = connector_of(cluster)
        [letter] = outgoing([letter_without_a_trace(cluster, connector)], Target("group", GROUP))
        assert connector.preview(letter).problem is None
        [sent] = published(connector, [letter])
        assert (sent.outcome, "POP or gRPC" in str(sent.detail)) == ("refused", True)
        pull(store, connector, SOURCE, PullOptions("drain"))
        connector.close()
    preloaded.analyze(store.location)
    columns = "mechanism, cause, origin, origin_group, attempts, message_id, keys[1], decode(body)"
    with views.connect(store) as letters:
        found = letters.execute(f"SELECT {columns} FROM letters WHERE message_id = '{key}'").fetchall()
        at_once = letters.execute(f"SELECT attempts FROM letters WHERE message_id <> '{key}'").fetchall()
    # Its group has one attempt; the proxy counts one more when it gives up.
    assert found == [("pop", "redelivery_exhausted", TOPIC, GROUP, 1, key, "order-7", "forgotten")]
    # So comes what a consumer in order counted by itself, too: nobody knows how often it had it.
    assert at_once == [(None,)]
