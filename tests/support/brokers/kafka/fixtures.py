"""Fixtures for tests on a real Kafka: one node per version and session, own names per test."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.install import VERSIONS

_numbers = count(1)
on_every_version = pytest.mark.parametrize("kafka_version", VERSIONS)
"""For tests that start nodes of their own."""


@dataclass
class KafkaPlace:
    """A running node and names of this test's own."""

    node: Kafka
    driver: Driver
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


@pytest.fixture(scope="session", params=VERSIONS)
def kafka_node(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A node; tests must not kill it."""
    with Kafka(request.param) as node:
        yield node


@pytest.fixture
def kafka(kafka_node: Kafka) -> KafkaPlace:
    """The node, and a client of the tests."""
    return KafkaPlace(kafka_node, Driver(kafka_node.bootstrap))
