"""On a real Kafka: what a consumer has fixed is what a rehearsal says, and no topic of it stays."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from support.brokers.kafka.fixtures import PASSWORD, KafkaPlace, connector_of
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, on_kafka, rehearse, told_of
from support.waiting import eventually

from dlq.core.errors import AccessDenied
from dlq.operations.workspace import Workspace

pytestmark = pytest.mark.kafka


@pytest.fixture
def workspace(kafka: KafkaPlace, tmp_path: Path) -> Workspace:
    return on_kafka(kafka, tmp_path)


class FixedSome:
    """Sends `broken` failures to the dead-letter topic, as Spring does, and commits what is done."""

    def __init__(self, kafka: KafkaPlace, broken: set[str]) -> None:
        self.settings, self.broken = kafka.driver.settings, broken
        self.marks: set[str] = set()

    def __call__(self, place: str, over: threading.Event) -> None:
        own = {"group.id": place, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer, producer = Consumer({**self.settings, **own}), Producer(self.settings)
        consumer.subscribe([place])
        while not over.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            failure, headers = (message.value() or b"").decode(), message.headers() or []
            self.marks |= {name for name, _ in headers}
            if failure in self.broken:
                why = ("kafka_dlt-exception-message", f"the {failure} is closed".encode())
                producer.produce(f"{place}-dlt", message.value(), headers=[*headers, why])
                producer.flush()
            consumer.commit(message, asynchronous=False)
        consumer.close()


def test_precision_and_recall_are_one(kafka: KafkaPlace, workspace: Workspace) -> None:
    before = kafka.driver.end(kafka.topic)
    consumer = FixedSome(kafka, {"stock", "login"})
    done = rehearse(workspace, f"topic:{kafka.topic}", consumer)
    assert fixed(done.document) == {*FAILURES} - consumer.broken
    assert counts(done.document, "stock") == (OF_EACH, 0, OF_EACH, 0)
    assert told_of(done.document, consumer.broken) == {"application_error"}
    assert consumer.marks == {"dlq_replay_id", "dlq_replay_lap", "dlq_replay_of", "dlq_rehearsal"}
    assert kafka.driver.end(kafka.topic) == before
    assert done.document["removed"]
    eventually(lambda: not any(name.startswith("dlq.rehearsal") for name in kafka.driver.topics()))


def test_a_right_that_is_missing_is_named_in_one_line(
    kafka: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOD", PASSWORD)
    login = {"user": "bob", "password_env": "GOOD", "mechanism": "PLAIN"}
    bob = connector_of(kafka.node, url=f"kafka://{kafka.node.sasl_bootstrap}", **login)
    with pytest.raises(
        AccessDenied, match=r"topics dlq\.rehearsal\.\*; grant Create, Write, Read and Delete$"
    ):
        bob.private("dlq.rehearsal.plan").make()
    bob.close()
