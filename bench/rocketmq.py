"""RocketMQ: draining into durable Parquet, and replaying, beside the official Java clients in the same run.

    python bench/rocketmq.py [--version 5.5.0] [--count 200000] [--size 1024]

The Java consumers throw away what they read; ours decodes it, writes segments and manifests with fsync, and
keeps the books. All share this machine with the broker: compare the columns of one run, not two runs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from services.rocketmq_broker import RocketMQ
from services.rocketmq_driver import Driver, eventually, unique_key

from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Outgoing, ReadRequest, Target
from dlq.connectors.rocketmq import RocketConnector
from dlq.connectors.rocketmq_records import record_maker
from dlq.core.settings import Broker, Source

DEAD = "%DLQ%bench"
BACK = "bench-back"
JAVA = Path(__file__).with_name("RocketBench.java")


def fill(driver: Driver, count: int, size: int) -> None:
    driver.create_topic(DEAD)
    driver.create_topic(BACK)
    body = os.urandom(size)
    driver.send_many(
        DEAD,
        count,
        lambda i: (body, {"UNIQ_KEY": unique_key(), "KEYS": f"k{i}", "TAGS": "t", "RETRY_TOPIC": BACK}),
    )
    eventually(lambda: driver.end(DEAD) == count)


def compiled(cluster: RocketMQ) -> str:
    folder = cluster.folder / "classes"
    subprocess.run(["javac", "-cp", f"{cluster.jars}/*", "-d", str(folder), str(JAVA)], check=True)
    return str(folder)


def java(cluster: RocketMQ, classes: str, topic: str, count: int, mode: str) -> float:
    command = cluster.java(
        "RocketBench", cluster.name_server, topic, str(count), mode, heap="512m", classes=classes
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("rate ")]
    return float(found[0]) if found else float("nan")


def drain(cluster: RocketMQ, count: int) -> float:
    connector = RocketConnector(Broker("bench", "rocketmq", cluster.url))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        result = pull(
            LocalStore(f"{folder}/archive"),
            connector,
            Source("s", "bench", group="bench"),
            PullOptions("drain"),
        )
        seconds = time.perf_counter() - started
    connector.close()
    assert result.captured == count, result
    return count / seconds


def publish(cluster: RocketMQ, driver: Driver, count: int) -> float:
    connector = RocketConnector(Broker("bench", "rocketmq", cluster.url))
    make = record_maker(
        ReadRequest(Source("s", "bench", group="bench"), "copy", "p"), "bench", "", "broker-a"
    )
    records = make(driver.messages(DEAD)[:1000])

    def letters() -> Iterator[Outgoing]:
        for i in range(count):
            provenance = {"dlq_replay_id": f"{i:032x}", "dlq_replay_lap": "1", "dlq_replay_of": f"{i:032x}"}
            yield Outgoing(i, records[i % 1000], Target("topic", BACK), provenance)

    publisher = connector.publisher("plan", 256)
    started = time.perf_counter()
    outcomes = [sent.outcome for sent in publisher.publish(letters())]
    seconds = time.perf_counter() - started
    publisher.close()
    assert outcomes.count("confirmed") == count
    return count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    room = {
        "mappedFileSizeCommitLog": 256 << 20,
        "transactionCheckInterval": 60_000,
        "sendMessageThreadPoolNums": 4,
    }
    with RocketMQ(options.version, **room) as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        fill(driver, options.count, options.size)
        classes = compiled(cluster)
        print(f"RocketMQ {options.version}, {options.count} x {options.size} B, msg/s", flush=True)
        for mode, name in (("lite", "Java DefaultLitePullConsumer"), ("pull", "Java DefaultMQPullConsumer")):
            print(f"{name:40}{java(cluster, classes, DEAD, options.count, mode):10.0f}", flush=True)
        print(f"{'dlq pull, durable':40}{drain(cluster, options.count):10.0f}", flush=True)
        driver.set("accessMessageInMemoryMaxRatio", 0)
        print(f"{'dlq pull, durable, cold data':40}{drain(cluster, options.count):10.0f}", flush=True)
        driver.set("accessMessageInMemoryMaxRatio", 40)
        few = options.count // 4
        print(
            f"{'Java asynchronous producer':40}{java(cluster, classes, BACK, few, 'async'):10.0f}", flush=True
        )
        print(f"{'dlq publisher, window 256':40}{publish(cluster, driver, few):10.0f}", flush=True)


if __name__ == "__main__":
    main()
