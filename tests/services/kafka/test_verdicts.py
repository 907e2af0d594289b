"""What Spring lets die in its several ways is pulled, and classified by what it left on it.

Of other frameworks, and of share groups, `tests/frameworks` proves the same.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.brokers.kafka import fixtures
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.kafka.install import install_frameworks
from support.jvm import QUICK, compiled
from support.waiting import PATIENCE

from dlq.analyzers.analysis import analyze
from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.kafka.plugin.description import KafkaSource
from dlq.core.settings import Settings

pytestmark = pytest.mark.kafka
GOOD, BAD = (7).to_bytes(4, "big"), b"no integer"
ALIVE = ("spring", "typed", "retried")
DEAD = ("spring-dlt", "spring-dlt-dlt", "typed-dlt", "retried-dlt")
KAFKA = "org.apache.kafka"
STATE, NO_ACCOUNT = "java.lang.IllegalStateException", "no such account: 7"
UNREAD = f"{KAFKA}.common.errors.SerializationException"
NOT_FOUR_BYTES = "Size of data received by IntegerDeserializer is not 4"
UNSUPPORTED = "java.lang.UnsupportedOperationException"
ERROR, UNREADABLE = ("application_error", "framework"), ("unreadable", "deserialization")
CONVERSION = "org.springframework.messaging.converter.MessageConversionException"
NO_UUID = "Cannot convert from [java.lang.Integer] to [java.util.UUID]"


PROGRAM = "KafkaDeaths"


@contextmanager
def running(bootstrap: str, prefix: str) -> Iterator[None]:
    """It reads the topics that begin with `prefix` until the end of the block."""
    jars = f"{install_frameworks()}/*"
    text = Path(fixtures.__file__).with_name(f"{PROGRAM}.java").read_text()
    classes = compiled({PROGRAM: text}, jars)
    command = ["java", "-Xmx256m", *QUICK, "-cp", f"{classes}:{jars}", PROGRAM, bootstrap, prefix]
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
        assert program.poll() is None, "it ended by itself"
    finally:
        program.kill()
        program.wait(PATIENCE)


def let_die(place: KafkaPlace, prefix: str) -> None:
    """A record that its consumer fails on and one that it cannot read, in each way."""
    driver = place.driver
    for name in (*ALIVE, "retried-retry", *DEAD):
        driver.create_topic(f"{prefix}-{name}")
    for name in ALIVE:
        driver.send_all(f"{prefix}-{name}", [(GOOD, b"k", [("traceparent", b"00-1")]), (BAD, b"k", [])])
    with running(place.node.bootstrap, prefix):
        for name in DEAD:
            driver.records(f"{prefix}-{name}", 2)


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


def test_each_way_in_which_spring_lets_letters_die_is_told(kafka: KafkaPlace, tmp_path: Path) -> None:
    let_die(kafka, kafka.topic)
    found = classified(kafka, tmp_path, [f"{kafka.topic}-{name}" for name in DEAD])
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
    }  # fmt: skip
