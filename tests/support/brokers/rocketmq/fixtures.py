"""Fixtures for tests on a real RocketMQ: one cluster per version and session, own names per test."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

import pytest
from support.brokers.rocketmq import install as rocketmq_install
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver
from support.brokers.rocketmq.install import VERSIONS
from support.brokers.seen import Seen, read_all
from support.waiting import UNHURRIED, eventually

from dlq.connectors.base import Checkpoint, Mode, ReadRequest
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.settings import Source

_numbers = count(1)
on_every_version = pytest.mark.parametrize("rocket_version", VERSIONS, scope="module")
"""For tests that start brokers of their own."""
on_newest_version = pytest.mark.parametrize("rocket_version", VERSIONS[:1], scope="module")


@cache
def why_missing(version: str) -> str | None:
    """Why there is no broker of this version on this machine; None when there is one."""
    return rocketmq_install.why_missing(version)


@dataclass
class Rocket:
    """A running cluster and a group of this test's own."""

    cluster: RocketMQ
    driver: Driver
    connector: RocketConnector
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def topic(self) -> str:
        """A topic of this test's own; created on first use by `driver.create_topic`."""
        return f"orders-{self.number}"

    @property
    def group(self) -> str:
        """A consumer group of this test's own."""
        return f"pay-{self.number}"

    @property
    def dead(self) -> str:
        """The group's dead-letter topic."""
        return f"%DLQ%{self.group}"

    def wait_for_routes(self, *topics: str) -> None:
        """Brokers answer before the name server knows a topic: 4.9 always, 5.x where a message makes it."""
        for topic in topics:
            eventually(lambda topic=topic: self.connector.cluster.route(topic))

    def request(self, mode: Mode = "drain", group: str | None = None, **more: object) -> ReadRequest:
        """A request for this test's group."""
        source = Source("s", "pay", group=group or self.group)
        wanted: dict[str, Any] = {"source": source, "mode": mode, "pull_id": "p", **more}
        return ReadRequest(**wanted)

    def read(self, resume: Checkpoint | None = None, **more: object) -> Seen:
        """Read everything."""
        return read_all(self.connector, self.request(resume=resume or {}, **more))


def connector_of(cluster: RocketMQ, **changes: object) -> RocketConnector:
    """A connector to a cluster of the tests."""
    settings: dict[str, Any] = {"url": getattr(cluster, "url", ""), "timeout": UNHURRIED, **changes}
    return RocketConnector(RocketBroker("pay", "rocketmq", **settings))


@pytest.fixture(scope="session", params=VERSIONS)
def rocket_server(request: pytest.FixtureRequest) -> Iterator[RocketMQ]:
    """A cluster of one broker for all tests."""
    with RocketMQ(request.param) as cluster:
        yield cluster


@pytest.fixture
def rocket_cluster(rocket_server: RocketMQ) -> Iterator[RocketMQ]:
    """A cluster of one broker; tests must not kill it."""
    with rocket_server.in_use():
        yield rocket_server


@pytest.fixture
def rocket(rocket_cluster: RocketMQ) -> Iterator[Rocket]:
    """The cluster, a connection to its broker, and our connector."""
    driver, connector = Driver(rocket_cluster.addresses["broker-a"]), connector_of(rocket_cluster)
    rocket = Rocket(rocket_cluster, driver, connector)
    driver.create_topic(rocket.topic)
    rocket.wait_for_routes(rocket.topic)
    yield rocket
    driver.close()
    connector.close()
