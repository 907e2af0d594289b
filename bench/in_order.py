"""How fast a plan in order is beside an unordered ramp, and whether a message overtook another of its key.

    python bench/in_order.py [--keys 10000] [--versions 3]

Versions of entities lie dead on a RabbitMQ of its own, and a consumer fails on 30 % of the first ones again. The
same letters go once by `apply --ramp` and once in order; both watch the consumer, and pull what comes back.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pika
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rabbitmq.install import install

DLQ = [sys.executable, "-m", "dlq.cli", "-q", "-o", "json"]
FAILS = 0.3
KEY = 'key = "header:entity"\n'
"""Of a plan in no order it would be the name of a message, and all but one of a key were left out."""


def consume(url: str, queue: str, failing: int, over: Any, told: Any) -> None:
    """Take all; the first versions of the first keys die again."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=500)
    seen: list[tuple[int, int]] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=0.2):
        if method is None and over.is_set():
            break
        if method is not None:
            key, version = map(int, body.split())
            seen.append((key, version))
            if version == 1 and key < failing:
                channel.basic_nack(method.delivery_tag, requeue=False)
            else:
                channel.basic_ack(method.delivery_tag)
    told.put(seen)


def dead_versions(rabbit: Rabbit, keys: int, versions: int) -> tuple[str, str]:
    """A queue, and its dead letters: the newest version of each key died first."""
    dead = rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    channel = pika.BlockingConnection(pika.URLParameters(rabbit.url)).channel()
    for version in range(versions, 0, -1):
        for key in range(keys):
            of_key = pika.BasicProperties(delivery_mode=2, timestamp=version, headers={"entity": f"{key}"})
            channel.basic_publish("", work, b"%d %d" % (key, version), of_key)
    rabbit.wait_for(work, keys * versions)
    rabbit.reject(work, keys * versions)
    rabbit.wait_for(dead, keys * versions)
    return work, dead


def replay(rabbit: Rabbit, folder: Path, keys: int, versions: int, in_order: bool) -> None:
    """One plan, from dead letters to the consumer; prints its figures."""
    work, dead = dead_versions(rabbit, keys, versions)
    broker = rabbit.broker()
    (folder / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{broker.url}"\npassword_env = "{broker.password_env}"\n'
        f'management_url = "{broker.management_url}"\n[sources.orders]\nbroker = "shop"\nqueue = "{dead}"\n'
        f'mode = "drain"\n{KEY if in_order else ""}[analysis]\nafter_pull = false\n'
    )

    def dlq(*words: str) -> Any:
        done = subprocess.run([*DLQ, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout)

    dlq("pull")
    started = time.monotonic()
    key_by_key = ["--in-order"] if in_order else []
    plan = dlq("replay", "plan", "--any-advice", *key_by_key)["plan"]
    planned = time.monotonic() - started
    over, told = multiprocessing.Event(), multiprocessing.Queue()
    failing = int(keys * FAILS)
    consumer = multiprocessing.Process(target=consume, args=(rabbit.url, work, failing, over, told))
    consumer.start()
    started = time.monotonic()
    done = dlq("replay", "apply", plan, *([] if in_order else ["--ramp", "--max-harm", "100"]))
    seconds = time.monotonic() - started
    over.set()
    seen = told.get()
    consumer.join()
    print(
        f"{'in order' if in_order else 'ramp':<9}{done['sent']:>8,} sent, {len(done['steps'])} steps, plan "
        f"{planned:5.1f} s, apply {seconds:6.1f} s, {done['sent'] / seconds:7,.0f} a second, "
        f"{inversions(seen, failing):,} inversions, {len(seen) - len(set(seen)):,} twice, "
        f"{len(done.get('stopped_keys', ())):,} keys stopped",
        flush=True,
    )


def inversions(seen: list[tuple[int, int]], failing: int) -> int:
    """Messages that came before, or without, the version that goes before them."""
    processed: set[tuple[int, int]] = set()
    wrong = 0
    for key, version in seen:
        wrong += version > 1 and (key, version - 1) not in processed
        if version > 1 or key >= failing:
            processed.add((key, version))
    return wrong


def main() -> None:
    """Both ways, one after the other, on one node."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--versions", type=int, default=3)
    asked = parser.parse_args()
    with Node(install()) as node:
        url = node.url_of("/")
        for in_order in (False, True):
            channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
            with tempfile.TemporaryDirectory() as folder:
                replay(Rabbit(url, "/", node, channel), Path(folder), asked.keys, asked.versions, in_order)


if __name__ == "__main__":
    main()
