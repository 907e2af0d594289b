"""A place that is read by two names is said: two configured sources, or a source that was renamed."""

import json
import tomllib
from typing import Any

from support.rows import each_row

from dlq.archive.storage.store import LocalStore
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
PULLED = {"source": "old", "broker": "shop", "reads": {"queue": "orders.dlq"}}
TWIN, OLD = "orders: twin reads the same place", "from source old, which is not configured any more"


@each_row("broker, what, is_said", [
    ("shop", 'queue = "orders.dlq"', True), ("same", 'queue = "orders.dlq"', True),
    ("shop", 'queue = "*.dlq"', True), ("shop", 'queue = "*.dead"', False),
    ("shop", 'queue = "orders.dead"', False), ("other", 'queue = "orders.dlq"', False),
    ("rocket", 'group = "orders.dlq"', False), ("rocket", "transactions = true", False),
])  # fmt: skip
def test_two_sources_of_one_place_are_said(store: LocalStore, broker: str, what: str, is_said: bool) -> None:
    said = warned(store, f'[sources.twin]\nbroker = "{broker}"\n{what}\n')
    assert (bool(said), TWIN in said) == (is_said, is_said)


def test_two_groups_of_one_broker_are_two_places(store: LocalStore) -> None:
    more = "".join(f'[sources.{name}]\nbroker = "rocket"\ngroup = "{name}"\n' for name in ("pay", "stock"))
    assert warned(store, more, "pay") == ""


@each_row("pulls, is_said", [
    ([], False), ([PULLED], True), ([PULLED, PULLED], True), ([{**PULLED, "source": "orders"}], False),
    ([{**PULLED, "broker": "other"}], False), ([{**PULLED, "broker": "gone"}], False),
    ([{**PULLED, "reads": {"queue": "stock.dlq"}}], False),
    ([{"source": "old", "broker": "shop"}], False), ([{**PULLED, "format": 99}], False),
])  # fmt: skip
def test_a_renamed_source_is_said_once(store: LocalStore, pulls: list[dict[str, Any]], is_said: bool) -> None:
    for name in store.list("topology/"):
        store.delete(name)
    for number, document in enumerate(pulls):
        store.put(f"topology/{number}.json", json.dumps({"format": 1, **document}).encode())
    assert warned(store, "").count(OLD) == int(is_said)


def warned(store: LocalStore, more: str, source: str = "orders") -> str:
    settings = parse(tomllib.loads(CONFIG + more))
    return "\n".join(source_aliases.warnings(settings, store, [settings.sources[source]]))
