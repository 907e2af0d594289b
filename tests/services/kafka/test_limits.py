"""What a cluster does not take is refused by name, with the limit and the remedy, and the rest goes."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from support.brokers.kafka import raw
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver, eventually
from support.brokers.kafka.fixtures import PASSWORD, USERS, KafkaPlace, connector_of
from support.brokers.kafka.letters import dead, outgoing, sent
from support.waiting import PATIENCE
from support.wire_builders import configure
from support.wire_builders import dlq_aloud as dlq

from dlq.connectors.kafka.plugin.description import KafkaSource
from dlq.core.errors import Unreachable

pytestmark = pytest.mark.kafka
LARGE = 600_000


def archived(folder: Path, driver: Driver, topic: str, broker: str, large: int = LARGE) -> str:
    """100 letters of a topic's own, of which one is large; returns the plan that brings them to `topic`."""
    dead = f"{topic}-dlt"
    driver.create_topic(dead, retention_ms=-1)
    driver.create_topic(topic, retention_ms=-1)
    bodies = [b"x" * large if n == 50 else b"letter %d" % n for n in range(100)]
    driver.send_all(dead, [(body, b"k", ()) for body in bodies])
    configure(folder, f'kind = "kafka"\n{broker}', f'topic = "{dead}"\nmode = "drain"')
    dlq(folder, "pull", "s")
    plan, _ = dlq(folder, "replay", "plan", "--any-advice", "--to", f"topic:{topic}")
    assert plan["selected"] == 100
    return str(plan["plan"])


def test_a_letter_above_the_topics_limit_is_refused_and_the_others_go(
    kafka: KafkaPlace, tmp_path: Path
) -> None:
    plan = archived(tmp_path, kafka.driver, kafka.topic, f'url = "{kafka.node.url}"')
    kafka.driver.configure(ResourceType.TOPIC, kafka.topic, max_message_bytes=100_000)
    found, said = dlq(tmp_path, "replay", "apply", plan, code=3)
    assert found["states"]["confirmed"] == 99
    assert found["states"]["refused"] == 1
    assert f"{kafka.topic} takes none above 100000 (max.message.bytes); raise it there" in said
    assert len(kafka.driver.records(kafka.topic, 99)) == 99


@pytest.fixture(scope="module")
def narrow() -> Iterator[Kafka]:
    """A node that ends a connection over which a large request comes; bob may use topics, and not read its
    settings."""
    with Kafka(users=USERS, acl=True, socket_request_max_bytes=400_000) as node:
        driver = Driver(node.bootstrap)
        for right in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS):
            driver.grant("*", right)
        yield node


def large_elsewhere(node: Kafka, folder: Path, broker: str, topic: str) -> str:
    """The node would not take the letter into its own dead letters, so it grows by an edit."""
    archived(folder, Driver(node.bootstrap), topic, broker, large=10)
    dlq(folder, "export", "all.jsonl")
    lines = [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]
    grown = next(line for line in lines if line.get("body_text") == "x" * 10)
    (folder / "one.jsonl").write_text(json.dumps({**grown, "body_text": "x" * LARGE}) + "\n")
    edited = ("--edit", "one.jsonl", "--where", "true", "--to", f"topic:{topic}")
    made, _ = dlq(folder, "replay", "plan", "--any-advice", *edited)
    assert made["selected"] == 100
    return str(made["plan"])


def test_a_letter_above_the_limit_of_requests_is_refused_before_it_is_sent(
    narrow: Kafka, tmp_path: Path
) -> None:
    plan = large_elsewhere(narrow, tmp_path, f'url = "{narrow.url}"', "told")
    found, said = dlq(tmp_path, "replay", "apply", plan, code=3)
    assert (found["states"]["confirmed"], found["states"]["refused"]) == (99, 1)
    assert "no request above 400000 (socket.request.max.bytes); raise it there" in said


def test_a_letter_with_which_the_connection_ends_twice_is_refused_and_the_others_go(
    narrow: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells bob of the limit."""
    monkeypatch.setenv("BOB", PASSWORD)
    broker = (
        f'url = "kafka://{narrow.sasl_bootstrap}"\nuser = "bob"\nmechanism = "PLAIN"\n'
        'password_env = "BOB"\ntimeout = "5s"'
    )
    plan = large_elsewhere(narrow, tmp_path, broker, "untold")
    began = time.monotonic()
    found, said = dlq(tmp_path, "replay", "apply", plan, code=3)
    assert (found["states"]["confirmed"], found["states"]["refused"]) == (99, 1)
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
    assert (first, moment <= second < moment + 60_000) == (ahead[0], True)


def test_a_quota_makes_a_replay_slow_and_leaves_nothing_in_doubt(kafka: KafkaPlace) -> None:
    """What is given to the library before it knows of the quota would wait for longer than it waits."""
    kafka.driver.create_topic(kafka.topic, partitions=2)
    letters = [
        outgoing(n, kafka.topic, "p", dead(n)._replace(body=b"x" * 1000, body_size=1000)) for n in range(600)
    ]
    connector = connector_of(kafka.node, timeout="20s")
    with raw.quota(kafka.node.bootstrap, "producer_byte_rate", 20_000):
        assert sent(connector, letters) == dict.fromkeys(range(600), "confirmed")
    assert connector.cluster.made_to_wait("")


def is_ended(node: Kafka) -> bool:
    """Whether the node ends a connection before anything was asked."""
    host, _, port = node.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=0.5) as opened:
        try:
            return opened.recv(1) == b""
        except TimeoutError:
            return False


def test_a_node_without_room_for_more_connections_is_told_with_the_settings_that_make_room() -> None:
    with Kafka() as node:
        driver = Driver(node.bootstrap)
        driver.create_topic("crowded-dlt")
        driver.configure(ResourceType.BROKER, "1", max_connections_per_ip=1)
        eventually(lambda: is_ended(node))
        with pytest.raises(Unreachable, match=r"max\.connections\.per\.ip"):
            connector_of(node, timeout="3s").gauge(KafkaSource("s", "shop", topic="crowded-dlt"))
