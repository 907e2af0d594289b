"""Brokers with a queue of dead letters to drain and one to replay to, of every kind, for bench/turns.py."""

import contextlib
import itertools
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SIZE = 1024


@dataclass(frozen=True)
class Place:
    """A running broker: what dlq.toml says of it, where letters go back to, and what puts so many dead letters
    there for the next drain. `enter` goes before a command that is to reach it."""

    settings: str
    target: str
    fill: Callable[[int], None]
    enter: Sequence[str] = ()


def _settings(source: str, **broker: str) -> str:
    lines = "".join(f'{name} = "{value}"\n' for name, value in broker.items() if value)
    return f'archive = "./archive"\n[brokers.b]\n{lines}[sources.s]\nbroker = "b"\n{source}\n'


@contextlib.contextmanager
def memory() -> Iterator[Place]:
    """The embedded broker in a file, in memory where there is such a folder: what is timed is dlq, not a disk."""
    from dlq.connectors.memory import broker_at

    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dlq-bench-", dir=quick) as folder:
        url = f"memory://{folder}/broker"
        for queue in ("dead", "back"):
            broker_at(url).declare(queue)

        def fill(letters: int) -> None:
            with contextlib.closing(sqlite3.connect(f"{folder}/broker")) as database, database:
                database.execute("DELETE FROM letters")
                rows = [(json.dumps(_document(number)),) for number in range(letters)]
                database.executemany("INSERT INTO letters (queue, document) VALUES ('dead', ?)", rows)

        yield Place(_settings('queue = "dead"', kind="memory", url=url), "queue:back", fill)


def _document(number: int) -> dict[str, Any]:
    """One of bench/letters.py as the embedded broker holds it."""
    import letters

    letter = letters.letter(number)
    headers: Mapping[str, Any] = letter.headers
    if "x-death" in headers:
        headers = {**headers, "x-death": json.loads(letter.headers["x-death"])}
    body = letter.body.decode() * (SIZE // len(letter.body) or 1)
    return {
        "broker_kind": "rabbitmq", "queue": "dead", "routing_key": "orders",
        "headers": headers, "properties": letter.properties, "body_text": body,
    }  # fmt: skip


@contextlib.contextmanager
def rabbitmq(version: str) -> Iterator[Place]:
    """Classic queues."""
    import rabbitmq as bench

    os.environ[bench.PASSWORD_VARIABLE] = "guest"
    with bench.running(version) as node:

        def fill(letters: int) -> None:
            bench.declare(node, "classic", ("dead", "back"))
            bench.fill(node, "dead", letters)

        settings = _settings(
            'queue = "dead"',
            kind="rabbitmq",
            url=node.broker().url,
            password_env=bench.PASSWORD_VARIABLE,
            management_url=node.http,
        )
        yield Place(settings, "queue:back", fill)


@contextlib.contextmanager
def activemq(version: str, openwire: bool = False) -> Iterator[Place]:
    """Classic or Artemis."""
    import activemq as bench
    from support.brokers.activemq.broker import Artemis
    from support.brokers.activemq.fixtures import settings_of

    new = Artemis(heap="1g") if version == "artemis" else bench.ActiveMq(version, heap="1g", jvm=[])
    with new as broker:
        known = settings_of(broker)

        def fill(letters: int) -> None:
            for queue in ("dead", "back"):
                bench.empty(known, queue)
            bench.fill(known, "dead", letters)

        settings = _settings(
            'queue = "dead"',
            kind="activemq",
            url=known.url,
            password_env=known.password_env or "",
            jolokia_url=known.jolokia_url or "",
            openwire_url=f"tcp://127.0.0.1:{broker.openwire}" if openwire else "",
        )
        yield Place(settings, "queue:back", fill)


@contextlib.contextmanager
def rocketmq(version: str) -> Iterator[Place]:
    """What is drained stays, so it is put there once."""
    import rocketmq as bench

    with bench.RocketMQ(version, jvm=["-XX:+UseSerialGC"], **bench.ROOM) as cluster:
        driver = bench.Driver(cluster.addresses["broker-a"])
        settings = _settings('group = "bench"', kind="rocketmq", url=cluster.url)
        fill = _once(lambda letters: bench.fill(driver, letters, SIZE))
        yield Place(settings, f"topic:{bench.BACK}", fill, cluster.namespace.enter)


@contextlib.contextmanager
def kafka(version: str) -> Iterator[Place]:
    """What is drained stays, so it is put there once."""
    import kafka as bench

    with bench.Kafka(version, jvm=["-XX:+UseSerialGC"]) as node:
        settings = _settings(f'topic = "{bench.DEAD}"', kind="kafka", url=node.url)
        fill = _once(lambda letters: bench.fill(bench.Driver(node.bootstrap), letters, SIZE))
        yield Place(settings, f"topic:{bench.BACK}", fill)


def _once(fill: Callable[[int], None]) -> Callable[[int], None]:
    calls = itertools.count()
    return lambda letters: None if next(calls) else fill(letters)


PLACES: Mapping[str, Callable[[], contextlib.AbstractContextManager[Place]]] = {
    "memory": memory,
    "rabbitmq": lambda: rabbitmq("4"),
    "rabbitmq-3.10": lambda: rabbitmq("3.10"),
    "activemq": lambda: activemq("6.3.1"),
    "activemq-5.18": lambda: activemq("5.18.6"),
    "activemq-openwire": lambda: activemq("6.3.1", openwire=True),
    "artemis": lambda: activemq("artemis"),
    "rocketmq": lambda: rocketmq("5.5.0"),
    "kafka": lambda: kafka("4.4.0"),
}
