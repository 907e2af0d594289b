"""The contract suite over the connectors that need no broker."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.archives import letter
from support.connector_contract import Place, ReadingContract
from support.sending_contract import Cut, SendingContract, SendingPlace

from dlq.connectors.base import Target
from dlq.connectors.file import FileConnector
from dlq.connectors.memory import MemoryConnector, broker_at
from dlq.core.record import Record
from dlq.core.settings import Broker, Source

SOURCE = Source("orders", "shop", queue="orders.dlq")


def _letter(number: int) -> dict[str, str]:
    return {"broker_kind": "rabbitmq", "body_text": f"letter {number}", "message_id": f"m-{number}"}


class TestMemory(ReadingContract):
    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Place:
        url, numbers = f"memory:{request.node.nodeid}", count()

        def fill(letters: int) -> list[bytes]:
            new = [*islice(numbers, letters)]
            broker_at(url).declare("orders.dlq")
            broker_at(url).put("orders.dlq", *map(_letter, new))
            return [f"letter {number}".encode() for number in new]

        return Place(MemoryConnector(Broker("shop", "memory", url)), SOURCE, fill)


class TestFile(ReadingContract):
    CANNOT: ClassVar = {"grow": "a file is read as it is when it is opened", "gauge": "a file is no queue"}

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        path = tmp_path / "letters.jsonl"

        def fill(letters: int) -> list[bytes]:
            path.write_text("".join(json.dumps(_letter(n)) + "\n" for n in range(letters)))
            return [f"letter {number}".encode() for number in range(letters)]

        return Place(FileConnector(str(path)), SOURCE, fill, forgets=False, cannot=self.CANNOT)


class TestMemorySending(SendingContract):
    CANNOT: ClassVar = {
        "buffer": "each letter is answered before the next is taken",
        "forget": "it leaves nothing beside the letters",
        "outage": "there is no network",
    }

    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> SendingPlace:
        url = f"memory:{request.node.nodeid}"
        broker, connector = broker_at(url), MemoryConnector(Broker("shop", "memory", url))
        broker.declare("orders")

        def refused() -> tuple[Record, Target]:
            broker.faults.refuse = lambda message: message.target.name == "forbidden"
            return letter(0), Target("queue", "forbidden")

        @contextmanager
        def cutting() -> Iterator[tuple[Any, Cut]]:
            yield connector, lambda given: setattr(broker.faults, "cut_publishing_after", given + 1)

        def arrived() -> list[str]:
            return [each["headers"]["dlq_replay_id"] for each in broker.letters("orders")]

        return SendingPlace(
            connector, Target("queue", "orders"), letter, arrived, nowhere=Target("queue", "nowhere"),
            refused=refused, cutting=cutting, cannot=self.CANNOT,
        )  # fmt: skip
