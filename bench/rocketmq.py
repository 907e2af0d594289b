"""RocketMQ: draining into durable Parquet, and replaying, beside the official Java clients in the same run.

    python bench/rocketmq.py [--version 5.5.0] [--letters 200000] [--size 1024] [--rounds 3]

The Java consumers throw away what they read; `dlq pull` decodes it, writes segments and manifests with
fsync, and keeps the books; `dlq replay apply` writes its ledger before and after each letter. A rate is of
the time without the start of the interpreter or the JVM; CPU is the whole process's. All share this
machine with the broker: compare the rows of one run, not two runs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver, eventually, unique_key

DEAD = "%DLQ%bench"
BACK = "bench-back"
ROOM = {
    "mappedFileSizeCommitLog": 256 << 20,
    "transactionCheckInterval": 60_000,
    "sendMessageThreadPoolNums": 4,
}
JAVA = Path(__file__).with_name("RocketBench.java")
DLQ = [sys.executable, "-m", "dlq.cli", "-q", "-o", "json"]


class Figure(NamedTuple):
    """Letters a second, and CPU microseconds a letter."""

    rate: float
    cpu: float


def fill(driver: Driver, count: int, size: int) -> None:
    """Dead letters as a consumer's failures leave them."""
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
    """The folder with the compiled Java clients."""
    folder = cluster.folder / "classes"
    command = ["javac", "-Xlint:-deprecation", "-cp", f"{cluster.jars}/*", "-d", str(folder), str(JAVA)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return str(folder)


def run(command: list[str], folder: Path | None = None) -> tuple[str, float]:
    """What a program prints, and the seconds of CPU that it took."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[-3:])} ended with {process.returncode}: {said}")
    return said, used.ru_utime + used.ru_stime


def java(cluster: RocketMQ, classes: str, topic: str, count: int, mode: str) -> Figure:
    """One of the official clients."""
    options = ("RocketBench", cluster.name_server, topic, str(count), mode)
    said, cpu = run(cluster.java(*options, heap="512m", classes=classes))
    rate = next(float(line.split()[1]) for line in said.splitlines() if line.startswith("rate "))
    return Figure(rate, cpu / count * 1e6)


class Dlq:
    """The command line in a folder of its own, in the same network as the broker."""

    def __init__(self, cluster: RocketMQ, folder: Path) -> None:
        self._enter, self._folder = cluster.namespace.enter, folder
        (folder / "dlq.toml").write_text(
            f'archive = "./archive"\n[brokers.bench]\nkind = "rocketmq"\nurl = "{cluster.url}"\n'
            '[sources.s]\nbroker = "bench"\ngroup = "bench"\n'
        )

    def __call__(self, *arguments: str) -> tuple[dict[str, Any], float]:
        """The document of one command, and its seconds of CPU."""
        said, cpu = run([*self._enter, *DLQ, *arguments], self._folder)
        return json.loads(said), cpu

    def pull(self, count: int) -> Figure:
        """Everything up to `count`."""
        document, cpu = self("pull", "s", "--mode", "drain", "--limit", str(count))
        (source,) = document["sources"]
        if source["captured"] != count:
            raise SystemExit(f"dlq pull captured {source['captured']} of {count}")
        return Figure(count / source["seconds"], cpu / count * 1e6)

    def apply(self, count: int) -> Figure:
        """Send back what was pulled."""
        plan, _ = self("replay", "plan", "--to", f"topic:{BACK}", "--any-advice")
        document, cpu = self("replay", "apply", str(plan["plan"]))
        if document["sent"] != count:
            raise SystemExit(f"dlq replay apply sent {document['sent']} of {count}")
        return Figure(count / document["seconds"], cpu / count * 1e6)


def one_round(cluster: RocketMQ, driver: Driver, classes: str, count: int) -> Iterator[tuple[str, Figure]]:
    """Every row once, one after the other."""
    few = count // 4
    for mode, name in (("lite", "Java DefaultLitePullConsumer"), ("pull", "Java DefaultMQPullConsumer")):
        yield name, java(cluster, classes, DEAD, count, mode)
    yield "dlq pull, durable", in_a_folder(cluster, lambda dlq: dlq.pull(count))
    driver.set("accessMessageInMemoryMaxRatio", 0)
    yield "dlq pull, durable, cold data", in_a_folder(cluster, lambda dlq: dlq.pull(count))
    driver.set("accessMessageInMemoryMaxRatio", 40)
    yield "Java asynchronous producer", java(cluster, classes, BACK, few, "async")
    yield (
        "dlq replay apply, with ledger",
        in_a_folder(cluster, lambda dlq: (dlq.pull(few), dlq.apply(few))[1]),
    )


def in_a_folder(cluster: RocketMQ, work: Callable[[Dlq], Figure]) -> Figure:
    """With an archive that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as name:
        return work(Dlq(cluster, Path(name)))


def main() -> None:
    """Measure and print the median of the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[Figure]] = {}
    both_compilers = ["-XX:+UseSerialGC"]
    with RocketMQ(options.version, jvm=both_compilers, **ROOM) as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        fill(driver, options.letters, options.size)
        classes = compiled(cluster)
        for number in range(options.rounds):
            started = time.monotonic()
            for name, figure in one_round(cluster, driver, classes, options.letters):
                found.setdefault(name, []).append(figure)
            seconds, load = time.monotonic() - started, os.getloadavg()[0]
            print(f"# round {number + 1}: {seconds:.0f} s, load {load:.1f}", file=sys.stderr, flush=True)
    print(f"RocketMQ {options.version}, {options.letters} x {options.size} B, median of {options.rounds}")
    print(f"{'':34}{'msg/s':>9}{'CPU us':>8}{'best':>9}")
    for name, figures in found.items():
        rates = [figure.rate for figure in figures]
        cpu = min(figure.cpu for figure in figures)
        print(f"{name:34}{median(rates):9.0f}{cpu:8.1f}{max(rates):9.0f}")


if __name__ == "__main__":
    main()
