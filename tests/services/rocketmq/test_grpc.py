"""A letter that a real gRPC consumer left to die, through a real proxy (which 4.9 has not)."""

from pathlib import Path

import pytest
from support import preloaded
from support.brokers.rocketmq.broker import PROGRAMS, RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of
from support.brokers.rocketmq.install import VERSIONS, has_proxy
from support.brokers.seen import read_all
from support.waiting import eventually

from dlq.archive import views
from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Outgoing, ReadRequest, SendRequest
from dlq.connectors.rocketmq.connector import RocketConnector
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
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
    driver.close()


def letter_without_a_trace(cluster: RocketMQ, connector: RocketConnector) -> Record:
    """What dies at its first failure was in no retry topic: nothing in it tells of gRPC."""
    driver = Driver(cluster.addresses["broker-a"])
    driver.dead_letter(TOPIC, GROUP, b"at once")
    driver.close()
    return read_all(connector, ReadRequest(SOURCE, "copy", "p")).records[-1]


def replay_to_group(connector: RocketConnector, record: Record) -> str:
    target = connector.target_of(record, "group")
    assert target is not None
    assert connector.preview(Outgoing(0, record, target, {})).problem is None
    publisher = connector.publisher(SendRequest("plan", 1))
    provenance = {"dlq_replay_id": "a" * 32, "dlq_replay_lap": "1", "dlq_replay_of": record.record_id}
    (sent,) = publisher.publish(iter([Outgoing(0, record, target, provenance)]))
    publisher.close()
    assert "POP or gRPC" in str(sent.detail)
    return sent.outcome


@pytest.mark.parametrize("version", list(filter(has_proxy, VERSIONS)))
def test_a_grpc_consumers_letter_is_known_by_its_retry_topic(version: str, tmp_path: Path) -> None:
    key, store = unique_key(), LocalStore(str(tmp_path / "archive"))
    with RocketMQ(version, timerWheelEnable="true") as cluster:  # without it there is no POP
        let_die(cluster, key)
        connector = connector_of(cluster)
        died_at_once = letter_without_a_trace(cluster, connector)
        assert replay_to_group(connector, died_at_once) == "refused"
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
