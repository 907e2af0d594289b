"""Kafka keeps the contract that every connector keeps."""

import pytest
from support import connector_contract
from support.brokers.kafka.fixtures import KafkaPlace
from support.connector_contract import ReadingContract

pytestmark = pytest.mark.kafka


class TestKafka(ReadingContract):
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
