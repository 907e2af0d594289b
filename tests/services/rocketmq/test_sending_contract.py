"""RocketMQ keeps the way back of the contract that every connector keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.archives import letter
from support.brokers.rocketmq.fixtures import Rocket, connector_of
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.base import Target
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.record import Record

pytestmark = pytest.mark.rocketmq


class TestRocketMQ(SendingContract):
    """The suite, into a topic of each version."""

    @pytest.fixture
    def place(self, rocket: Rocket, monkeypatch: pytest.MonkeyPatch) -> SendingPlace:
        target = Target("topic", rocket.topic)

        def letters(number: int) -> Record:
            return letter(
                number, broker_kind="rocketmq", properties={"n": str(number)}, body=b"letter %d" % number
            )

        def arrived() -> list[str]:
            found = (parse_properties(m.properties) for m in rocket.driver.messages(rocket.topic))
            return [properties["dlq_replay_id"] for properties in found]

        @contextmanager
        def cutting() -> Iterator[tuple[Any, Cut]]:
            connector = connector_of(rocket.cluster)
            with Cutter(rocket.cluster.addresses["broker-a"]) as cutter, monkeypatch.context() as patch:
                by_the_cutter = lambda refresh=False: {"broker-a": cutter.address}  # noqa: E731
                patch.setattr(connector.cluster, "masters", by_the_cutter)
                yield connector, lambda _given: cutter.loses_answers.set()
            connector.close()

        return SendingPlace(
            rocket.connector,
            target,
            letters,
            arrived,
            nowhere=Target("topic", f"nowhere-{rocket.number}"),
            not_there="refused",
            refused=lambda: (letters(2)._replace(properties={"big": "v" * 40_000}), target),
            cutting=cutting,
            servers=[*rocket.cluster.addresses.values(), rocket.cluster.name_server],
            cannot={"forget": "it leaves nothing on the broker: each letter is looked up by itself"},
        )
