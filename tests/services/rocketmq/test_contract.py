"""RocketMQ keeps the contract that every connector keeps."""

import pytest
from support import connector_contract
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.connector_contract import ReadingContract
from support.waiting import eventually

pytestmark = pytest.mark.rocketmq


class TestRocketMQ(ReadingContract):
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
    found = {place.name: place for place in rocket.connector.discover()}
    assert found[rocket.dead].depth == 1
    assert found[rocket.dead].source == {"group": rocket.dead.removeprefix("%DLQ%")}
    assert [place.source for place in found.values() if place.kind == "transactions"] == [
        {"transactions": True}
    ]
