"""Each wait that a configuration may name is one that librdkafka takes."""

import pytest
from confluent_kafka import Consumer

from dlq.connectors.kafka.link import clients
from dlq.connectors.kafka.plugin.description import KafkaBroker


@pytest.mark.parametrize("wait", ["1ms", "5m", "6m", "1h"])
def test_each_wait_is_one_that_the_library_takes(wait: str) -> None:
    broker = KafkaBroker("b", "kafka", url="kafka://127.0.0.1:1", timeout=wait)
    Consumer({**clients._settings(broker), "group.id": "g"}).close()
