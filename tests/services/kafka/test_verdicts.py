"""What real frameworks and the broker let die is pulled, and classified by what they left on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType
from support.brokers.kafka import frameworks
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.fixtures import KafkaPlace

from dlq.analyzers.analysis import analyze
from dlq.archive import views
from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.kafka.plugin.description import KafkaSource
from dlq.core.settings import Settings

pytestmark = pytest.mark.kafka
GOOD, BAD = (7).to_bytes(4, "big"), b"no integer"
DEAD = ("spring-dlt", "spring-dlt-dlt", "typed-dlt", "retried-dlt", "streams-dead", "connect-dead")
KAFKA = "org.apache.kafka"
STATE, NO_ACCOUNT = "java.lang.IllegalStateException", "no such account: 7"
UNREAD = f"{KAFKA}.common.errors.SerializationException"
NOT_FOUR_BYTES = "Size of data received by IntegerDeserializer is not 4"
DATA = f"{KAFKA}.connect.errors.DataException"
UNSUPPORTED = "java.lang.UnsupportedOperationException"
ERROR, UNREADABLE = ("application_error", "framework"), ("unreadable", "deserialization")
CONVERSION = "org.springframework.messaging.converter.MessageConversionException"
NO_UUID = "Cannot convert from [java.lang.Integer] to [java.util.UUID]"
JSON = "com.fasterxml.jackson.core.JsonParseException"
NO_JSON = "Unexpected character ('n' (code 110)): was expecting double-quote to start field name"


def let_die(place: KafkaPlace, prefix: str) -> None:
    """A record that its consumer fails on and one that it cannot read, of each framework."""
    driver = place.driver
    for name in ("spring", "typed", "retried", "retried-retry", "streams", "connect", *DEAD):
        driver.create_topic(f"{prefix}-{name}")
    for name in ("spring", "typed", "retried", "streams"):
        driver.send_all(f"{prefix}-{name}", [(GOOD, b"k", [("traceparent", b"00-1")]), (BAD, b"k", [])])
    driver.send_all(f"{prefix}-connect", [(b'{"id": 7}', b"k", []), (b"{no json", b"k", [])])
    with frameworks.running(place.node.bootstrap, prefix):
        for name in DEAD:
            driver.records(f"{prefix}-{name}", 2)


def let_a_share_group_refuse(driver: Driver, topic: str, dead: str, group: str) -> None:
    """One record is rejected; the next is released until the group has had it as often as it may."""
    driver.create_topic(topic)
    driver.create_topic(dead, errors_deadletterqueue_group_enable="true")
    driver.share_group(group, dead, share_delivery_count_limit=2)
    driver.send_all(topic, [(b"refused", None, []), (b"released", None, [])])
    verdicts = {b"refused": AcknowledgeType.REJECT, b"released": AcknowledgeType.RELEASE}
    driver.share(group, topic, lambda message: verdicts[message.value()], 3)
    driver.records(dead, 2)


COLUMNS = "cause, mechanism, rule, origin, origin_group, attempts, exception_class, exception_message"


def classified(place: KafkaPlace, folder: Path, topics: Sequence[str]) -> dict[tuple[str, str], list[Any]]:
    """Topic and body -> what is known of each of these dead letters, without this test's prefix."""
    store = LocalStore(str(folder / "archive"))
    for topic in topics:
        pull(store, place.connector, KafkaSource(topic, "shop", topic=topic), PullOptions("copy"))
    analyze(store, Settings())
    query = f"SELECT replace(dead_letter_queue, $prefix, ''), body, {COLUMNS} FROM letters"
    with views.connect(store) as connection:
        rows = connection.execute(query, {"prefix": f"{place.topic}-"}).fetchall()
    told = {(topic, body): columns for topic, body, *columns in rows}
    return {
        at: [one.replace(f"{place.topic}-", "") if isinstance(one, str) else one for one in columns]
        for at, columns in told.items()
    }


def test_each_framework_and_the_broker_say_why_their_letters_died(kafka: KafkaPlace, tmp_path: Path) -> None:
    prefix, shared = kafka.topic, f"{kafka.topic}-shared"
    let_die(kafka, prefix)
    let_a_share_group_refuse(kafka.driver, shared, f"dlq.{shared}", f"{prefix}-share")
    found = classified(kafka, tmp_path, [*(f"{prefix}-{name}" for name in DEAD), f"dlq.{shared}"])
    number = (UNREAD, NOT_FOUR_BYTES)
    assert found == {
        ("spring-dlt", GOOD): [*ERROR, "spring-recoverer", "spring", "billing", 2, STATE, NO_ACCOUNT],
        ("spring-dlt", BAD): [*UNREADABLE, "spring-unread", "spring", "billing", 1, *number],
        # A dead letter that died again: its newest headers count.
        ("spring-dlt-dlt", GOOD): [
            *ERROR, "spring-recoverer", "spring-dlt", "repair", 2, UNSUPPORTED, "not today",
        ],
        ("spring-dlt-dlt", BAD): [*UNREADABLE, "spring-unread", "spring-dlt", "repair", 1, *number],
        ("typed-dlt", GOOD): [*UNREADABLE, "spring-unread", "typed", "typing", 1, CONVERSION, NO_UUID],
        ("typed-dlt", BAD): [*UNREADABLE, "spring-unread", "typed", "typing", 1, *number],
        ("retried-dlt", GOOD): [*ERROR, "spring-retry", "retried", "retrying", 2, STATE, NO_ACCOUNT],
        ("retried-dlt", BAD): [*UNREADABLE, "spring-retry-unread", "retried", "retrying", 1, *number],
        ("streams-dead", GOOD): [*ERROR, "streams", "streams", None, None, STATE, NO_ACCOUNT],
        ("streams-dead", BAD): [*UNREADABLE, "streams-unread", "streams", None, None, *number],
        ("connect-dead", b'{"id": 7}'): [
            *ERROR, "connect", "connect", None, None, DATA, "no such account: {id=7}",
        ],
        ("connect-dead", b"{no json"): [
            *UNREADABLE, "connect-converter", "connect", None, None, JSON, NO_JSON,
        ],
        ("dlq.shared", b"refused"): [
            "poison_ack", "reject", "share-reject", "shared", "share", 1, None, None,
        ],
        ("dlq.shared", b"released"): [
            "redelivery_exhausted", "delivery_limit", "share-limit", "shared", "share", 2, None, None,
        ],
    }  # fmt: skip
