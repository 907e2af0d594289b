"""Kafka keeps the contract that every connector keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support import connector_contract
from support.archives import letter
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.connector_contract import ReadingContract
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.base import Target
from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.core.record import Record

pytestmark = pytest.mark.kafka


class TestReading(ReadingContract):
    """The suite, on a topic of dead letters."""

    @pytest.fixture
    def place(self, kafka: KafkaPlace) -> connector_contract.Place:
        kafka.driver.create_topic(kafka.dead)

        def fill(count: int) -> list[bytes]:
            start = kafka.driver.end(kafka.dead)
            bodies = [b"letter %d" % number for number in range(start, start + count)]
            kafka.driver.send_all(kafka.dead, [(body, None, ()) for body in bodies])
            return bodies

        return connector_contract.Place(kafka.connector, kafka.request().source, fill, forgets=False)


def test_topics_are_discovered_by_their_name_and_by_what_they_take(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.create_topic(f"dlq.{kafka.number}", errors_deadletterqueue_group_enable="true")
    kafka.driver.send(kafka.dead, b"letter")
    found = {place.name: place for place in kafka.connector.discover()}
    assert (found[kafka.dead].depth, found[kafka.dead].source) == (1, {"topic": kafka.dead})
    assert found[f"dlq.{kafka.number}"].because == "it takes dead letters of share groups"
    assert kafka.topic not in found


def letter_of(number: int, body: bytes = b"") -> Record:
    """A dead letter as the connector reads it."""
    block = encode(RawRecord(b"k%d" % number, [("n", b"%d" % number)]))
    body = body or b"letter %d" % number
    return letter(number, broker_kind="kafka", raw_properties=block, body=body, body_size=len(body))


class TestSending(SendingContract):
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
