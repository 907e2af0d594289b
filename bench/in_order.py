"""How fast a plan in order is beside an unordered ramp, and whether a message overtook another of its key.

    python bench/in_order.py [--broker rabbitmq] [--keys 10000] [--versions 3]

Versions of entities lie dead on a broker of its own, and a consumer fails on 30 % of the first ones again. The
same letters go once by `apply --ramp` and once in order; both watch the consumer, and pull what comes back. RocketMQ
(as root) gives no evidence: there all go by a plain `apply`, and once by one `--in-order=sent`, and none fails.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pika
from support import shops
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, Artemis, broker_of
from support.brokers.activemq.fixtures import Place, settings_of
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rabbitmq.install import install
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver as RocketDriver
from support.brokers.rocketmq.driver import unique_key
from support.shops import Consume, Shop

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector

DLQ = [sys.executable, "-m", "dlq.cli", "-q", "-o", "json"]
FAILS = 0.3
RAMP = ("--ramp", "--max-harm", "100")


class Way(NamedTuple):
    """How one broker is measured."""

    shop: Callable[[], Shop]
    unordered: Sequence[str] = RAMP
    in_order: str = "--in-order"
    fails: float = FAILS
    enter: Sequence[str] = ()
    """Before a command that is to reach the broker."""


@contextlib.contextmanager
def rabbitmq() -> Iterator[Way]:
    """The newest version, by its management."""
    with Node(install()) as node:
        url = node.url_of("/")

        def shop() -> Shop:
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
            return shops.of_rabbitmq(Rabbit(url, "/", node, channel))

        yield Way(shop)


@contextlib.contextmanager
def activemq(version: str) -> Iterator[Way]:
    """Classic by Jolokia, or Artemis."""
    with Artemis(heap="1g") if version == ARTEMIS else broker_of(version) as broker:
        settings, numbers = settings_of(broker), itertools.count()
        yield Way(
            lambda: shops.of_activemq(
                Place(broker, settings, ActiveMQConnector(settings), f"orders{next(numbers)}")
            )
        )


@contextlib.contextmanager
def kafka() -> Iterator[Way]:
    """One partition."""
    with Kafka("4.4.0") as node:
        yield Way(lambda: shops.of_kafka(KafkaPlace(node, Driver(node.bootstrap), connector_of(node))))


@contextlib.contextmanager
def rocketmq() -> Iterator[Way]:
    """One queue; what is pulled stays, so each run has a group of its own."""
    with RocketMQ("5.5.0") as cluster:
        driver, numbers = RocketDriver(cluster.addresses["broker-a"]), itertools.count()

        def shop() -> Shop:
            name = f"orders{next(numbers)}"
            for topic in (name, f"%DLQ%{name}"):
                driver.create_topic(topic)

            def fill(texts: Sequence[str]) -> None:
                for _, some in itertools.groupby(texts, lambda text: text.split()[1]):
                    letters = [*some]
                    driver.send_many(f"%DLQ%{name}", len(letters), lambda i, of=letters: letter(of[i]))  # type: ignore[misc]

            def letter(text: str) -> tuple[bytes, Mapping[str, str]]:
                marks = {"UNIQ_KEY": unique_key(), "RETRY_TOPIC": name, "__SHARDINGKEY": text.split()[0]}
                return text.encode(), marks

            def takes(consume: Consume, over: threading.Event) -> None:
                own, done = RocketDriver(cluster.addresses["broker-a"]), 0
                while not over.wait(0.2):
                    for message in own.messages(name, start=done):
                        consume(message.body.decode())
                        done = message.queue_offset + 1

            config = f'[brokers.shop]\nkind = "rocketmq"\nurl = "{cluster.url}"\n'
            source = f'[sources.orders]\nbroker = "shop"\ngroup = "{name}"\nmode = "drain"\n'
            return Shop(config + source, "", f"topic:{name}", fill, takes)

        yield Way(shop, (), "--in-order=sent", 0.0, cluster.namespace.enter)


WAYS: Mapping[str, Callable[[], contextlib.AbstractContextManager[Way]]] = {
    "rabbitmq": rabbitmq,
    "activemq": lambda: activemq(CLASSIC[-1]),
    "artemis": lambda: activemq(ARTEMIS),
    "kafka": kafka,
    "rocketmq": rocketmq,
}


def replay(way: Way, folder: Path, texts: Sequence[str], failing: int, in_order: bool) -> None:
    """One plan, from dead letters to the consumer; prints its figures."""
    shop = way.shop()
    shop.fill(texts)
    # Of a plan in no order a key would be the name of a message, and all but one of a key were left out.
    (folder / "dlq.toml").write_text(
        f"{shop.config}{shop.key if in_order else ''}[analysis]\nafter_pull = false\n"
    )

    def dlq(*words: str) -> Any:
        command = [*way.enter, *DLQ, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout)

    dlq("pull")
    started = time.monotonic()
    plan = dlq("replay", "plan", "--any-advice", "--to", shop.to, *([way.in_order] if in_order else ()))[
        "plan"
    ]
    planned = time.monotonic() - started
    seen, over = list[tuple[int, int]](), threading.Event()

    def consume(text: str) -> bool:
        key, version = map(int, text.split())
        seen.append((key, version))
        return version > 1 or key >= failing

    consumer = threading.Thread(target=shop.takes, args=(consume, over))
    consumer.start()
    started = time.monotonic()
    try:
        done = dlq("replay", "apply", plan, *(() if in_order else way.unordered))
        seconds = time.monotonic() - started
        while len(seen) < done["sent"] and time.monotonic() < started + seconds + 60:
            time.sleep(0.1)  # where no apply waits for the consumer
    finally:
        over.set()
        consumer.join()
    print(
        f"{'in order' if in_order else 'unordered':<10}{done['sent']:>8,} sent, {len(done.get('steps', ()))} "
        f"steps, plan {planned:5.1f} s, apply {seconds:6.1f} s, {done['sent'] / seconds:7,.0f} a second, "
        f"{inversions(seen, failing):,} inversions, {len(seen) - len({*seen}):,} twice, "
        f"{done['sent'] - len({*seen}):,} lost, {len(done.get('stopped_keys', ())):,} keys stopped; load "
        f"{os.getloadavg()[1]:.0f}",
        flush=True,
    )


def inversions(seen: Sequence[tuple[int, int]], failing: int) -> int:
    """Messages that came before, or without, the version that goes before them."""
    processed: set[tuple[int, int]] = set()
    wrong = 0
    for key, version in seen:
        wrong += version > 1 and (key, version - 1) not in processed
        if version > 1 or key >= failing:
            processed.add((key, version))
    return wrong


def main() -> None:
    """Both ways, one after the other, on one broker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=WAYS, default="rabbitmq")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=3)
    asked = parser.parse_args()
    with WAYS[asked.broker]() as way:
        # RabbitMQ alone keeps the time of sending that it is told: there the newest die first.
        numbers = range(1, asked.versions + 1)
        versions = reversed(numbers) if asked.broker == "rabbitmq" else numbers
        texts = [f"{key} {version}" for version in versions for key in range(asked.keys)]
        for in_order in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                replay(way, Path(folder), texts, int(asked.keys * way.fails), in_order)


if __name__ == "__main__":
    main()
