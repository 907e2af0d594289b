"""What a cluster does not take is refused by name, with the limit and the remedy, and the rest goes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation
from support.brokers.kafka import raw
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.fixtures import PASSWORD, USERS, KafkaPlace, connector_of
from support.brokers.kafka.letters import dead, outgoing, sent
from support.sending_contract import until_it_ends
from support.waiting import PATIENCE, eventually
from support.wire_builders import configure
from support.wire_builders import dlq_aloud as dlq

from dlq.connectors.base import SendRequest
from dlq.connectors.kafka.plugin.connector import KafkaConnector

pytestmark = pytest.mark.kafka
LARGE = 600_000


@pytest.fixture(scope="module")
def narrow() -> Iterator[Kafka]:
    """A node that ends a connection over which a large request comes; bob may use topics, and not read its
    settings."""
    with Kafka(users=USERS, acl=True, socket_request_max_bytes=400_000) as node:
        driver = Driver(node.bootstrap)
        for right in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS):
            driver.grant("*", right)
        yield node


def why_refused(connector: KafkaConnector, topic: str) -> str:
    """Of ten letters one is large and is refused; the others go."""
    large = dead(5)._replace(body=b"x" * LARGE, body_size=LARGE)
    letters = [outgoing(n, topic, "p", large if n == 5 else dead(n)) for n in range(10)]
    answers, error = until_it_ends(connector.publisher(SendRequest("plan", 1000)), iter(letters))
    refused = {answer.number: answer for answer in answers if answer.outcome != "confirmed"}
    assert (error, len(answers), [*refused], refused[5].outcome) == (None, 10, [5], "refused")
    return str(refused[5].detail)


def test_a_letter_above_the_topics_limit_is_refused_and_the_others_go(kafka: KafkaPlace) -> None:
    kafka.driver.create_topic(kafka.topic, max_message_bytes=100_000)
    said = why_refused(kafka.connector, kafka.topic)
    assert "takes none above 100000 (max.message.bytes); raise it there" in said


def test_a_letter_above_the_limit_of_requests_is_refused_before_it_is_sent(narrow: Kafka) -> None:
    Driver(narrow.bootstrap).create_topic("told")
    said = why_refused(connector_of(narrow), "told")
    assert "no request above 400000 (socket.request.max.bytes); raise it there" in said


def test_a_letter_with_which_the_connection_ends_twice_is_refused_and_the_others_go(
    narrow: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells bob of the limit. The node takes no such letter of the dead, so it grows by an edit."""
    monkeypatch.setenv("BOB", PASSWORD)
    broker = (
        f'kind = "kafka"\nurl = "kafka://{narrow.sasl_bootstrap}"\nuser = "bob"\nmechanism = "PLAIN"\n'
        'password_env = "BOB"\ntimeout = "5s"'
    )
    configure(tmp_path, broker, 'topic = "untold-dlt"\nmode = "drain"')
    driver = Driver(narrow.bootstrap)
    for topic in ("untold", "untold-dlt"):
        driver.create_topic(topic, retention_ms=-1)
    driver.send_all("untold-dlt", [(b"letter %d" % n, b"k", ()) for n in range(20)])
    dlq(tmp_path, "pull", "s")
    dlq(tmp_path, "export", "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    [grown] = [{**line, "body_text": "x" * LARGE} for line in lines if line.get("body_text") == "letter 5"]
    (tmp_path / "one.jsonl").write_text(json.dumps(grown) + "\n")
    edited = ("--edit", "one.jsonl", "--where", "true", "--to", "topic:untold")
    plan, _ = dlq(tmp_path, "replay", "plan", "--any-advice", *edited)
    began = time.monotonic()
    found, said = dlq(tmp_path, "replay", "apply", plan["plan"], code=3)
    assert (found["states"]["confirmed"], found["states"]["refused"]) == (19, 1)
    assert "the connection ended both times that it was sent" in said
    assert time.monotonic() - began < PATIENCE


def test_a_time_that_lies_ahead_is_kept_as_far_as_the_topic_takes_it(kafka: KafkaPlace) -> None:
    """An hour, unless it says something else; beyond that a record is refused, so it goes as of now."""
    kafka.driver.create_topic(kafka.topic, retention_ms=-1)
    moment = int(time.time() * 1000)
    ahead = [moment + 600_000, moment + 2 * 3_600_000]
    letters = [outgoing(n, kafka.topic, "p", dead(n, published_at=at * 1000)) for n, at in enumerate(ahead)]
    assert set(sent(kafka.connector, letters).values()) == {"confirmed"}
    first, second = (m.timestamp()[1] for m in kafka.driver.records(kafka.topic, 2))
    assert (first, moment <= second <= time.time() * 1000) == (ahead[0], True)


def test_a_quota_makes_a_replay_slow_and_leaves_nothing_in_doubt(kafka: KafkaPlace) -> None:
    """What is given to the library before it knows of the quota would wait for longer than it waits."""
    kafka.driver.create_topic(kafka.topic, partitions=2)
    record = dead(0)._replace(body=b"x" * 1000, body_size=1000)
    letters = [outgoing(n, kafka.topic, "p", record) for n in range(600)]
    connector = connector_of(kafka.node, timeout="10s")

    def is_made_to_wait() -> bool:
        assert sent(connector, letters) == dict.fromkeys(range(600), "confirmed")
        return bool(connector.cluster.made_to_wait(""))

    with raw.quota(kafka.node.bootstrap, "producer_byte_rate", 40_000):
        eventually(is_made_to_wait)  # the broker heeds it some time after the controller
