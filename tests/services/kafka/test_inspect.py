"""What `dlq doctor` says of a topic of dead letters: how long they stay, and what loses them silently."""

from typing import Any

import pytest
from confluent_kafka import AcknowledgeType
from support.brokers.kafka.driver import eventually
from support.brokers.kafka.fixtures import KafkaPlace

from dlq.core.values.units import seconds

pytestmark = pytest.mark.kafka

_CONNECT = "Connect and Streams leave dead letters the time of their record"
SETTINGS: list[tuple[dict[str, Any], set[str]]] = [
    ({"retention_ms": -1}, set()),
    ({"retention_ms": 604_800_000, "message_timestamp_type": "LogAppendTime"}, set()),
    ({"retention_ms": 604_800_000}, {_CONNECT}),
    ({"retention_ms": 3_600_000, "message_timestamp_type": "LogAppendTime"}, {"deleted within a day"}),
    ({"retention_ms": -1, "cleanup_policy": "compact"}, {"is compacted"}),
    ({"retention_ms": -1, "retention_bytes": 100_000}, {"beyond retention.bytes=100000 of a partition"}),
]


def test_settings_that_lose_letters_are_named(kafka: KafkaPlace) -> None:
    for n, (settings, warned) in enumerate(SETTINGS):
        topic = f"{kafka.topic}-{n}-dlt"
        kafka.driver.create_topic(topic, **settings)
        kafka.driver.send(topic, b"letter", key=b"k")
        inspection = kafka.connector.inspect(kafka.request(topic=topic).source)
        of_topic = [warning for warning in inspection.warnings if warning.startswith(topic)]
        assert (inspection.depth, len(of_topic)) == (1, len(warned)), settings
        assert all(any(text in warning for warning in of_topic) for text in warned), settings


def test_how_long_the_oldest_letter_stays_follows_from_its_own_time(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.dead, retention_ms=7_200_000, message_timestamp_type="LogAppendTime")
    kafka.driver.send(kafka.dead, b"letter")
    source = kafka.request().source
    left = kafka.connector.inspect(source).facts["oldest letter is deleted in"][kafka.dead]
    assert 3600 <= seconds(left.replace(" ", "").partition("h")[0] + "h") <= 7200
    oldest = kafka.connector.gauge(source).oldest
    assert oldest == kafka.driver.records(kafka.dead, 1)[0].timestamp()[1] * 1000


@pytest.mark.parametrize("wrong", ["there is no topic", "takes no dead letters"])
def test_a_share_group_whose_dead_letters_are_lost_is_named(kafka: KafkaPlace, wrong: str) -> None:
    group, topic = f"share-{kafka.number}", f"dlq.{kafka.number}"
    kafka.driver.create_topic(kafka.dead)
    kafka.driver.create_topic(kafka.topic)
    if wrong == "takes no dead letters":
        kafka.driver.create_topic(topic)
    kafka.driver.share_group(group, topic)
    kafka.driver.send(kafka.topic, b"x")
    kafka.driver.share(group, kafka.topic, lambda _: AcknowledgeType.ACCEPT, 1)
    source = kafka.request().source
    warnings = eventually(
        lambda: [w for w in kafka.connector.inspect(source).warnings if f"share group {group}:" in w]
    )
    assert len(warnings) == 1
    assert wrong in warnings[0]
