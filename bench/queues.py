"""What commands cost on a RabbitMQ with very many queues.

    python bench/queues.py [--queues 10000] [--matching 1000] [--version 4] [--json FILE]

A private node gets so many classic queues, each dead-lettering into one of those that match `*.dlq`, which is
the source; each of these holds one letter. A row is a whole command: seconds, the command's processor seconds,
its peak memory, and what a matching queue costs beside a source of one queue on the same node.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pika
from rabbitmq import DLQ, PASSWORD_VARIABLE, Node, running

_CONFIGURATION = """archive = "{folder}/archive"
[brokers.shop]
kind = "rabbitmq"
url = "{url}"
password_env = "{variable}"
management_url = "{http}"
[sources.all]
broker = "shop"
queue = "*.dlq"
[sources.one]
broker = "shop"
queue = "q0000.dlq"
"""
COMMANDS = {
    "doctor": ("doctor", "all"),
    "watch, one look": ("watch", "all", "--count", "1", "-o", "jsonl"),
    "discover": ("discover", "-o", "json"),
    "coverage": ("coverage", "-o", "json"),
    "pull --mode copy": ("pull", "all", "--no-analyze", "-o", "json"),
    "pull --mode drain": ("pull", "all", "--mode", "drain", "--no-analyze", "-o", "json"),
}


@dataclass
class Row:
    """One command, and the same for the source of one queue where there is such a thing."""

    what: str
    seconds: float
    cpu: float
    peak_mib: float
    alone: float | None = None


def fill(node: Node, queues: int, matching: int) -> None:
    """Declare the queues, and send one letter to each that matches."""
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    for name in names(matching):
        channel.queue_declare(name, durable=True)
        channel.basic_publish("", name, b"letter", pika.BasicProperties(delivery_mode=2))
    for number in range(queues - matching):
        way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{number % matching:04d}.dlq"}
        channel.queue_declare(f"work.{number:05d}", durable=True, arguments=way)
    connection.close()


def names(matching: int) -> Iterator[str]:
    """The queues of the source."""
    yield from (f"q{number:04d}.dlq" for number in range(matching))


def timed(folder: Path, words: tuple[str, ...]) -> tuple[float, float, float]:
    """Seconds, processor seconds and MiB of a command. Raises CalledProcessError where it fails."""
    started = time.monotonic()
    process = subprocess.Popen([*DLQ, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(code, words, None, said[-2000:])
    return time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measured(folder: Path) -> Iterator[Row]:
    """A row for each command."""
    for what, words in COMMANDS.items():
        seconds, cpu, peak = timed(folder, words)
        one = tuple("one" if word == "all" else word for word in words)
        alone = timed(folder, one)[0] if "all" in words else None
        row = Row(what, seconds, cpu, peak, alone)
        beside = "" if alone is None else f"  one queue {alone:6.1f} s"
        print(f"{what:20} {seconds:7.1f} s  {cpu:6.1f} s CPU  {peak:6.0f} MiB{beside}", flush=True)
        yield row


def main() -> None:
    """The command line of the module's docstring."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--queues", type=int, default=10_000)
    options.add_argument("--matching", type=int, default=1_000)
    options.add_argument("--version", default="4", choices=("3.10", "4"))
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    os.environ[PASSWORD_VARIABLE] = "guest"
    with running(given.version) as node, tempfile.TemporaryDirectory() as made:
        fill(node, given.queues, given.matching)
        time.sleep(10)  # the statistics of the last queues
        text = _CONFIGURATION.format(
            folder=made, url=node.broker().url, http=node.http, variable=PASSWORD_VARIABLE
        )
        (Path(made) / "dlq.toml").write_text(text)
        rows = list(measured(Path(made)))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
