"""RocketMQ keeps the contract that every connector keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support import connector_contract
from support.archives import letter
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket, connector_of
from support.connector_contract import ReadingContract
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter
from support.waiting import eventually

from dlq.connectors.base import Target
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.record import Record

pytestmark = pytest.mark.rocketmq


class TestReading(ReadingContract):
    """The suite, on a dead-letter topic of each version."""

    @pytest.fixture
    def place(self, rocket: Rocket) -> connector_contract.Place:
        rocket.driver.create_topic(rocket.dead)

        def fill(count: int) -> list[bytes]:
            start = rocket.driver.end(rocket.dead)
            bodies = [b"letter %d" % number for number in range(start, start + count)]
            for body in bodies:
                rocket.driver.send(rocket.dead, body, {"UNIQ_KEY": unique_key()})
            eventually(lambda: rocket.driver.end(rocket.dead) == start + count)
            return bodies

        return connector_contract.Place(rocket.connector, rocket.request().source, fill, forgets=False)


def test_dead_letters_of_groups_and_half_messages_are_discovered(rocket: Rocket) -> None:
    rocket.driver.create_topic(rocket.dead)
    rocket.driver.send(rocket.dead, b"letter", {"UNIQ_KEY": unique_key()})
    eventually(lambda: rocket.driver.end(rocket.dead) == 1)
    rocket.wait_for_routes(rocket.dead)
    found = {place.name: place for place in rocket.connector.discover()}
    assert found[rocket.dead].depth == 1
    assert found[rocket.dead].source == {"group": rocket.dead.removeprefix("%DLQ%")}
    assert [place.source for place in found.values() if place.kind == "transactions"] == [
        {"transactions": True}
    ]


class TestSending(SendingContract):
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
