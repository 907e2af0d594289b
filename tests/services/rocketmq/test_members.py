"""One broker of several that does not answer never keeps the letters of the others from being read."""

import os
import signal
from collections.abc import Iterator

import pytest
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of
from support.brokers.seen import read_all
from support.waiting import eventually

from dlq.connectors.base import ReadRequest
from dlq.core.errors import ConnectionLost
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
SOURCE = Source("s", "pay", group="pay")


@pytest.fixture(scope="module")
def pair() -> Iterator[RocketMQ]:
    """Two masters, each with one letter; tests may freeze one."""
    with RocketMQ("5.5.0", nodes=2) as cluster:
        for node, address in cluster.addresses.items():
            driver = Driver(address)
            driver.create_topic("%DLQ%pay")
            driver.send("%DLQ%pay", node.encode(), {"UNIQ_KEY": unique_key()})
            driver.close()
        yield cluster


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_pulled(pair: RocketMQ) -> None:
    connector = connector_of(pair, timeout="3s")
    eventually(lambda: len(read_all(connector, ReadRequest(SOURCE, "copy", "p")).records) == 2)
    os.kill(pair.pid("broker-b"), signal.SIGSTOP)
    try:
        seen = read_all(connector, ReadRequest(SOURCE, "drain", "p"))
        assert ([record.body for record in seen.records], seen.complete) == ([b"broker-a"], False)
        assert any(note.startswith("not read: broker-b: ") for note in seen.notes)
        assert "broker-b: " in connector.inspect(SOURCE).leaves_out["drain"]
        gauge = connector.gauge(SOURCE)
        assert (gauge.depth, "not read: broker-b: " in gauge.note) == (1, True)
        os.kill(pair.pid("broker-a"), signal.SIGSTOP)
        with pytest.raises(ConnectionLost):
            connector.gauge(SOURCE)
    finally:
        for node in pair.addresses:
            os.kill(pair.pid(node), signal.SIGCONT)
    eventually(lambda: len(read_all(connector, ReadRequest(SOURCE, "drain", "p")).records) == 2)
