"""Kafka keeps the way back of the contract that every connector keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.archives import letter
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.base import Target
from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.core.record import Record

pytestmark = pytest.mark.kafka


def letter_of(number: int, body: bytes = b"") -> Record:
    """A dead letter as the connector reads it."""
    block = encode(RawRecord(b"k%d" % number, [("n", b"%d" % number)]))
    body = body or b"letter %d" % number
    return letter(number, broker_kind="kafka", raw_properties=block, body=body, body_size=len(body))


class TestKafka(SendingContract):
    """The suite, into a topic of three partitions."""

    @pytest.fixture
    def place(self, kafka: KafkaPlace) -> SendingPlace:
        target = Target("topic", kafka.topic)
        kafka.driver.create_topic(kafka.topic, partitions=3, max_message_bytes=10_000)

        def arrived() -> list[str]:
            found = [m for n in range(3) for m in kafka.driver.records(kafka.topic, partition=n)]
            return [dict(m.headers() or ())["dlq_replay_id"].decode() for m in found]

        @contextmanager
        def cutting() -> Iterator[tuple[Any, Cut]]:
            with Cutter(kafka.node.behind, kafka.node.front) as cutter:
                connector = connector_of(kafka.node, timeout="10s", url=f"kafka://{cutter.address}")
                yield connector, lambda _given: cutter.loses_answers.set()
                connector.close()

        return SendingPlace(
            kafka.connector,
            target,
            letter_of,
            arrived,
            nowhere=Target("topic", f"nowhere-{kafka.number}"),
            refused=lambda: (letter_of(2, b"x" * 20_000), target),
            cutting=cutting,
            servers=[kafka.node.bootstrap],
            cannot={
                "buffer": "the buffer is the library's, which may write a letter as soon as it has it",
                "forget": "it leaves nothing on the broker: each letter is looked up by itself",
            },
        )
