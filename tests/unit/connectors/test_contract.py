"""The contract suite over the connectors that need no broker."""

import json
from pathlib import Path

import pytest
from support.connector_contract import Place, ReadingContract

from dlq.connectors.file import FileConnector
from dlq.connectors.memory import MemoryConnector, broker_at
from dlq.core.settings import Broker, Source

SOURCE = Source("orders", "shop", queue="orders.dlq")


def _letter(number: int) -> dict[str, str]:
    return {"broker_kind": "rabbitmq", "body_text": f"letter {number}", "message_id": f"m-{number}"}


class TestMemory(ReadingContract):
    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Place:
        url = f"memory:{request.node.nodeid}"
        count = 0

        def fill(letters: int) -> list[bytes]:
            nonlocal count
            numbers = range(count, count + letters)
            count += letters
            broker_at(url).declare("orders.dlq")
            broker_at(url).put("orders.dlq", *map(_letter, numbers))
            return [f"letter {number}".encode() for number in numbers]

        return Place(MemoryConnector(Broker("shop", "memory", url)), SOURCE, fill)


class TestFile(ReadingContract):
    test_a_gauge_counts_what_is_there_and_takes_nothing = None  # a file is no queue

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        path = tmp_path / "letters.jsonl"

        def fill(letters: int) -> list[bytes]:
            path.write_text("".join(json.dumps(_letter(n)) + "\n" for n in range(letters)))
            return [f"letter {number}".encode() for number in range(letters)]

        return Place(FileConnector(str(path)), SOURCE, fill, grows=False, forgets=False)
