"""Fixtures for tests on a real Kafka: one node per version and session, own names per test."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.install import VERSIONS
from support.brokers.seen import Seen, read_all

from dlq.connectors.base import Checkpoint, Mode, ReadRequest
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.plugin.description import KafkaBroker, KafkaSource
from dlq.core.runtime import patience

_numbers = count(1)
PASSWORD = "s3cret-of-bob"
USERS = dict.fromkeys(("admin", "ann", "bob", "eve"), PASSWORD)
"""Of the listener with SASL; ann, bob and eve have no right on anything but what a test gives them."""


@dataclass
class KafkaPlace:
    """A running node and names of this test's own."""

    node: Kafka
    driver: Driver
    connector: KafkaConnector
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def topic(self) -> str:
        """A topic of this test's own; created by `driver.create_topic`."""
        return f"orders-{self.number}"

    @property
    def dead(self) -> str:
        """Where its dead letters lie, as Spring names it."""
        return f"{self.topic}-dlt"

    @property
    def group(self) -> str:
        """A consumer group of this test's own."""
        return f"billing-{self.number}"

    def request(self, mode: Mode = "drain", topic: str | None = None, **more: object) -> ReadRequest:
        """A request for this test's dead letters."""
        source = KafkaSource("s", "shop", topic=topic or self.dead)
        wanted: dict[str, Any] = {"source": source, "mode": mode, "pull_id": "p", **more}
        return ReadRequest(**wanted)

    def read(self, resume: Checkpoint | None = None, **more: object) -> Seen:
        """Read everything."""
        return read_all(self.connector, self.request(resume=resume or {}, **more))


def connector_of(node: Kafka, **changes: object) -> KafkaConnector:
    """A connector to a node of the tests."""
    settings: dict[str, Any] = {"url": node.url, "timeout": "30s", **changes}
    return KafkaConnector(KafkaBroker("shop", "kafka", **settings))


@pytest.fixture(scope="session", params=VERSIONS)
def kafka_node(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A node with users, rights and TLS beside its plain listener. Who freezes or kills it, revives it. It
    makes topics on demand, as brokers do unless told otherwise: only there it shows that we make none."""
    with Kafka(request.param, users=USERS, acl=True, tls=True, auto_create_topics_enable="true") as node:
        yield node


@pytest.fixture
def nothing_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request is under way that a broker may still store, so nobody need wait for that."""
    monkeypatch.setattr(patience, "SETTLED", 0.0)


@pytest.fixture
def kafka(kafka_node: Kafka) -> Iterator[KafkaPlace]:
    """The node, a client of the tests, and our connector."""
    connector = connector_of(kafka_node)
    yield KafkaPlace(kafka_node, Driver(kafka_node.bootstrap), connector)
    connector.close()
