"""Kafka: draining into durable Parquet, and replaying, beside the official Java clients and the bare Python
client in the same run.

    python bench/kafka.py [--version 4.4.0] [--letters 200000] [--size 1024] [--rounds 3]

The clients throw away what they read; `dlq pull` decodes it, writes segments and manifests with fsync, and
keeps the books; `dlq replay apply` writes its ledger before and after each letter. A rate is of the time without
the start of the interpreter or the JVM; CPU is the whole process's, memory its highest. All share this machine
with the broker: compare the rows of one run, not two runs.
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

from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver
from support.brokers.kafka.install import VERSIONS

DEAD, BACK = "bench-dlt", "bench-back"
JAVA = Path(__file__).with_name("KafkaBench.java")
DLQ = [sys.executable, "-m", "dlq.cli", "-q", "-o", "json"]
BARE = """
import sys, time
from confluent_kafka import Consumer, TopicPartition
servers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, 0, 0)])
got, start = 0, time.monotonic()
while got < count:
    for message in consumer.consume(2000, 0.2):
        got += 1
        message.key(), message.value(), message.headers(), message.timestamp(), message.offset()
print("rate", count / (time.monotonic() - start))
"""


class Figure(NamedTuple):
    """Letters a second, CPU microseconds a letter, and MiB."""

    rate: float
    cpu: float
    memory: float


def fill(driver: Driver, count: int, size: int) -> None:
    """Dead letters as Spring leaves them: trace and offset are each letter's own."""
    driver.create_topic(DEAD, retention_ms=-1)
    driver.create_topic(BACK)
    body = os.urandom(size)
    for start in range(0, count, 5000):
        numbers = range(start, min(start + 5000, count))
        driver.send_all(DEAD, [(body, b"%d" % number, told(number)) for number in numbers])


def told(number: int) -> list[tuple[str, bytes]]:
    """The headers of one letter."""
    return [
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-%016x-01" % number),
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\0\0\0\1"),
        ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-message", b"Listener failed; nested exception is java.io.IOException: no"),
    ]


def compiled(node: Kafka) -> str:
    """The folder with the compiled Java clients."""
    folder = node.folder / "classes"
    subprocess.run(["javac", "-cp", f"{node.jars}/*", "-d", str(folder), str(JAVA)], check=True)
    return str(folder)


def run(command: list[str], folder: Path | None = None) -> tuple[str, float, float]:
    """What a program prints, the seconds of CPU that it took, and the MiB."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[-3:])} ended with {process.returncode}: {said}")
    return said, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def other(command: list[str], count: int) -> Figure:
    """A client that prints its rate."""
    said, cpu, memory = run(command)
    rate = next(float(line.split()[1]) for line in said.splitlines() if line.startswith("rate "))
    return Figure(rate, cpu / count * 1e6, memory)


class Dlq:
    """The command line in a folder of its own."""

    def __init__(self, node: Kafka, folder: Path) -> None:
        self._folder = folder
        (folder / "dlq.toml").write_text(
            f'archive = "./archive"\n[brokers.bench]\nkind = "kafka"\nurl = "{node.url}"\n'
            f'[sources.s]\nbroker = "bench"\ntopic = "{DEAD}"\n'
        )

    def __call__(self, *arguments: str) -> tuple[dict[str, Any], float, float]:
        """The document of one command, its seconds of CPU, and its MiB."""
        said, cpu, memory = run([*DLQ, *arguments], self._folder)
        return json.loads(said), cpu, memory

    def pull(self, count: int) -> Figure:
        """Everything up to `count`."""
        document, cpu, memory = self("pull", "s", "--mode", "drain", "--limit", str(count))
        (source,) = document["sources"]
        if source["captured"] != count:
            raise SystemExit(f"dlq pull captured {source['captured']} of {count}")
        return Figure(count / source["seconds"], cpu / count * 1e6, memory)

    def apply(self, count: int) -> Figure:
        """Send back what was pulled."""
        plan, _, _ = self("replay", "plan", "--to", f"topic:{BACK}", "--any-advice")
        document, cpu, memory = self("replay", "apply", str(plan["plan"]))
        if document["sent"] != count:
            raise SystemExit(f"dlq replay apply sent {document['sent']} of {count}")
        return Figure(count / document["seconds"], cpu / count * 1e6, memory)


def one_round(node: Kafka, classes: str, count: int) -> Iterator[tuple[str, Figure]]:
    """Every row once, one after the other."""
    few = count // 4
    places = node.bootstrap, DEAD, str(count)
    yield (
        "Java consumer",
        other(node.java("KafkaBench", *places, "consume", heap="512m", classes=classes), count),
    )
    yield "confluent-kafka, bare", other([sys.executable, "-c", BARE, *places], count)
    yield "dlq pull, durable", in_a_folder(node, lambda dlq: dlq.pull(count))
    there = node.bootstrap, BACK, str(few)
    yield (
        "Java idempotent producer",
        other(node.java("KafkaBench", *there, "produce", heap="512m", classes=classes), few),
    )
    yield (
        "dlq replay apply, with ledger",
        in_a_folder(node, lambda dlq: (dlq.pull(few), dlq.apply(few))[1]),
    )


def in_a_folder(node: Kafka, work: Callable[[Dlq], Figure]) -> Figure:
    """With an archive that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as name:
        return work(Dlq(node, Path(name)))


def main() -> None:
    """Measure and print the median of the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default=VERSIONS[0])
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[Figure]] = {}
    with Kafka(options.version, jvm=["-XX:+UseSerialGC"]) as node:
        fill(Driver(node.bootstrap), options.letters, options.size)
        classes = compiled(node)
        for number in range(options.rounds):
            started = time.monotonic()
            for name, figure in one_round(node, classes, options.letters):
                found.setdefault(name, []).append(figure)
            seconds, load = time.monotonic() - started, os.getloadavg()[0]
            print(f"# round {number + 1}: {seconds:.0f} s, load {load:.1f}", file=sys.stderr, flush=True)
    print(f"Kafka {options.version}, {options.letters} x {options.size} B, median of {options.rounds}")
    print(f"{'':34}{'msg/s':>9}{'CPU us':>8}{'best':>9}{'MiB':>7}")
    for name, figures in found.items():
        rates = [figure.rate for figure in figures]
        cpu, memory = min(figure.cpu for figure in figures), max(figure.memory for figure in figures)
        print(f"{name:34}{median(rates):9.0f}{cpu:8.1f}{max(rates):9.0f}{memory:7.0f}")


if __name__ == "__main__":
    main()
