"""A log broker of a page keeps the whole contract."""

import inspect
import json
from itertools import count, islice
from pathlib import Path

import pytest
from support.archives import letter
from support.brokers import toy_log
from support.connector_contract import Place, ReadingContract
from support.sending_contract import SendingContract, SendingPlace

from dlq.connectors.base import Target
from dlq.core import brokers
from dlq.core.record import Record
from dlq.core.settings import Broker, Source

MOST_LINES = 150


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(brokers.REGISTRY, "toylog", "support.brokers.toy_log:TOY_LOG")  # type: ignore[arg-type]


def connector(folder: Path) -> toy_log.ToyLogConnector:
    return toy_log.ToyLogConnector(Broker("shop", "toylog", f"toylog://{folder}"))


class TestReading(ReadingContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        topic = tmp_path / "orders.dlq.log"
        topic.touch()
        numbers = count()

        def fill(letters: int) -> list[bytes]:
            bodies = [f"letter {number}" for number in islice(numbers, letters)]
            with topic.open("a") as sink:
                sink.writelines(json.dumps({"body_text": body}) + "\n" for body in bodies)
            return [body.encode() for body in bodies]

        return Place(connector(tmp_path), Source("orders", "shop", topic="orders.dlq"), fill, forgets=False)


class TestSending(SendingContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> SendingPlace:
        topic = tmp_path / "orders.log"
        topic.touch()

        def refused() -> tuple[Record, Target]:
            return letter(0, body=b"x" * toy_log.LONGEST_LINE), Target("topic", "orders")

        return SendingPlace(
            connector(tmp_path),
            Target("topic", "orders"),
            letter,
            lambda: [json.loads(line)["headers"]["dlq_replay_id"] for line in topic.open()],
            nowhere=Target("topic", "nowhere"),
            refused=refused,
            cannot={
                "cut": "a file has no connection",
                "outage": "a file has no connection",
                "forget": "nothing is left beside the letters",
            },
        )


def test_a_driver_of_a_log_is_a_page() -> None:
    assert len(inspect.getsource(toy_log).splitlines()) <= MOST_LINES
