"""A place that is read by two names is said: two configured sources, or a source that was renamed."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dlq.archive.store import open_store
from dlq.capture import source_aliases
from dlq.core.configuration import parse

CONFIG = """
[brokers.shop]
kind = "rabbitmq"
url = "amqp://host"
management_url = "http://host:15672"
[brokers.same]
kind = "rabbitmq"
url = "amqp://host"
[brokers.other]
kind = "rabbitmq"
url = "amqp://other"
[brokers.rocket]
kind = "rocketmq"
url = "rocketmq://host:9876"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
"""


def warned(folder: Path, more: str, pulls: list[dict[str, Any]] | None = None, source: str = "orders") -> str:
    settings = parse(tomllib.loads(CONFIG + more))
    store = open_store(str(folder / "archive"))
    for number, document in enumerate(pulls or []):
        store.put(f"topology/{number}.json", json.dumps({"format": 1, **document}).encode())
    return "\n".join(source_aliases.warnings(settings, store, [settings.sources[source]]))


@pytest.mark.parametrize(("broker", "what", "is_said"), [
    ("shop", 'queue = "orders.dlq"', True), ("same", 'queue = "orders.dlq"', True),
    ("shop", 'queue = "*.dlq"', True), ("shop", 'queue = "*.dead"', False),
    ("shop", 'queue = "orders.dead"', False), ("other", 'queue = "orders.dlq"', False),
    ("rocket", 'group = "orders.dlq"', False), ("rocket", "transactions = true", False),
])  # fmt: skip
def test_two_sources_of_one_place_are_said(tmp_path: Path, broker: str, what: str, is_said: bool) -> None:
    said = warned(tmp_path, f'[sources.twin]\nbroker = "{broker}"\n{what}\n')
    assert bool(said) is is_said
    assert "orders: twin reads the same place" in said or not is_said


def test_two_groups_of_one_broker_are_two_places(tmp_path: Path) -> None:
    more = "".join(f'[sources.{name}]\nbroker = "rocket"\ngroup = "{name}"\n' for name in ("pay", "stock"))
    assert warned(tmp_path, more, source="pay") == ""


PULLED = {"source": "old", "broker": "shop", "reads": {"queue": "orders.dlq"}}


@pytest.mark.parametrize(
    ("pulls", "is_said"),
    [
        ([], False), ([PULLED], True), ([PULLED, PULLED], True), ([{**PULLED, "source": "orders"}], False),
        ([{**PULLED, "broker": "other"}], False), ([{**PULLED, "broker": "gone"}], False),
        ([{**PULLED, "reads": {"queue": "stock.dlq"}}], False),
        ([{"source": "old", "broker": "shop"}], False), ([{**PULLED, "format": 99}], False),
    ],
)  # fmt: skip
def test_a_renamed_source_is_said_once(tmp_path: Path, pulls: list[dict[str, Any]], is_said: bool) -> None:
    said = warned(tmp_path, "", pulls)
    assert said.count("from source old, which is not configured any more") == int(is_said)
