"""How long a plan takes to look for newer messages of its letters' keys in a Kafka topic, and whether it is right.

    python bench/superseded.py [--messages 10000000] [--keys 1000]

Of each key one early message died, and of one key in ten its newest: these go, and all of the early ones are held.
"""

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from confluent_kafka import Producer
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver, Headers

TOPIC, DEAD, GROUP = "entities", "entities-dlt", "billing"
VALUE = b'{"state": "%d", "text": "' + b"x" * 80 + b'"}'
DLQ = [sys.executable, "-m", "dlq.cli", "-o", "json"]
CONFIG = """\
[brokers.shop]
kind = "kafka"
url = "{url}"
[sources.entities]
broker = "shop"
topic = "{dead}"
key = "property:key"
mode = "drain"
[consumers.billing]
sources = ["*"]
replay = "safe"
"""


def fill(driver: Driver, messages: int, keys: int) -> None:
    """Each key has its turn; the offset of a message is its number."""
    driver.create_topic(TOPIC)
    quick = {"linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({**driver.settings, **quick})
    for number in range(messages):
        while True:
            try:
                producer.produce(TOPIC, VALUE % number, b"%d" % (number % keys))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0
    assert driver.end(TOPIC) == messages


def let_die(offset: int, keys: int) -> tuple[bytes, bytes, Headers]:
    """As Spring says where it lay."""
    told = [
        ("kafka_dlt-original-topic", TOPIC.encode()),
        ("kafka_dlt-original-partition", (0).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", GROUP.encode()),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ]
    return VALUE % offset, b"%d" % (offset % keys), told


def main() -> None:
    """One topic, one plan."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    asked = parser.parse_args()
    messages, keys = asked.messages, asked.keys
    with Kafka("4.4.0") as node, tempfile.TemporaryDirectory() as folder:
        driver = Driver(node.bootstrap)
        began = time.monotonic()
        fill(driver, messages, keys)
        print(f"{messages:,} messages for {keys:,} keys in {time.monotonic() - began:.0f} s", flush=True)
        driver.create_topic(DEAD)
        newest = range(messages - keys, messages, 10)
        died = itertools.chain(range(keys), newest)
        driver.send_all(DEAD, [let_die(offset, keys) for offset in died])
        driver.commit(GROUP, TOPIC, messages)
        Path(folder, "dlq.toml").write_text(CONFIG.format(url=node.url, dead=DEAD))
        subprocess.run([*DLQ, "-q", "pull"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        began = time.monotonic()
        words = [*DLQ, "replay", "plan", "--fixed"]
        done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
        seconds, plan = time.monotonic() - began, json.loads(done.stdout)
        said = next(line for line in done.stderr.splitlines() if "looks for newer" in line)
        print(said)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        print(
            f"plan {seconds:.0f} s, {plan['superseded']:,} of {keys:,} held, {plan['selected']:,} of "
            f"{len(newest):,} newest go, not looked at {plan['not_looked_at']}, left out {plan['left_out']}, "
            f"peak {peak} MiB, load {os.getloadavg()[1]:.0f}"
        )


if __name__ == "__main__":
    main()
