"""Reading from and sending to RabbitMQ, against a shovel and stock pika, in one run on the same node.

    python bench/rabbitmq.py [--letters 200000] [--versions 3.10 4] [--kinds classic quorum]
        [--pairs 5] [--json FILE]

Letters are 1 KiB persistent, with x-death and six headers. dlq is timed as its user sees it: the wall
time of the whole command, interpreter start and durable Parquet included; of an apply it is the time of sending,
ledger included.
"""

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pika
from rabbitmq_rivals import pika_confirms, pika_consumer, shovel

from dlq.connectors.base import Outgoing, Target
from dlq.connectors.rabbitmq.amqp091.codec.confirms import message
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.amqp091.send import RabbitPublisher
from dlq.connectors.rabbitmq.link import parameters
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import ConnectionLost
from dlq.core.record import Record

BODY = b"x" * 1014
PASSWORD_VARIABLE = "DLQ_BENCH_PASSWORD"
HEADERS: dict[str, object] = {
    "x-death": [
        {
            "count": 1,
            "reason": "rejected",
            "queue": "orders",
            "time": datetime.datetime(2026, 11, 2, 3, 12, 9, tzinfo=datetime.UTC),
            "exchange": "shop",
            "routing-keys": ["order.created"],
        }
    ],
    "x-first-death-queue": "orders",
    "x-first-death-reason": "rejected",
    "x-first-death-exchange": "shop",
    "app": "orders",
    "tenant": 42,
}
DLQ = [sys.executable, "-m", "dlq.cli"]


@dataclass(frozen=True)
class Node:
    """A running node: its URLs with and without the password, and the management API."""

    url: str
    http: str

    def broker(self) -> RabbitBroker:
        """As dlq's settings have it."""
        url = self.url.replace(":guest@", "@")
        return RabbitBroker(
            "shop", "rabbitmq", url=url, password_env=PASSWORD_VARIABLE, management_url=self.http
        )


@contextlib.contextmanager
def running(version: str) -> Iterator[Node]:
    """A private node of the tests."""
    programs = Path(__file__).parent.parent / "tests" / "support" / "brokers" / "rabbitmq"
    root = []
    if version == "4":
        asked = [sys.executable, programs / "install.py"]
        said_so = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
        root = [said_so.partition(" is in ")[2].rpartition(" (")[0]]
    started = [sys.executable, programs / "broker.py", *root]
    process = subprocess.Popen(started, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = dict(part.split("=", 1) for part in process.stdout.readline().split())
        yield Node(said["url"], said["http"])
    finally:
        process.terminate()
        process.wait()


@dataclass
class Row:
    """One measurement."""

    version: str
    kind: str
    what: str
    rate: float
    cpu_us: float | None = None
    """The command's CPU time in microseconds a letter."""
    peak_mib: float | None = None
    ratios: tuple[float, ...] = ()
    """With a witness: to the rate without one, of each pair."""


def block(number: int) -> bytes:
    """The property block of a dead letter; trace and message id differ, as they do in the wild."""
    headers = {**HEADERS, "trace": f"{number:032x}"}
    properties = pika.BasicProperties(
        content_type="application/json", headers=headers, delivery_mode=2, message_id=f"m-{number}"
    )
    return b"".join(properties.encode())


def fill(node: Node, queue: str, letters: int) -> None:
    """Publish the letters without confirms, and wait until they lie in the queue."""
    link = Link(parameters(node.broker()), lambda code, text: ConnectionLost(f"{code} {text}"))
    for first in range(0, letters, 200):
        some = range(first, min(first + 200, letters))
        frames = [message("", queue, block(n), b"%010d" % n + BODY, link.frame_max) for n in some]
        link.write(b"".join(frames))
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    while connection.channel().queue_declare(queue, passive=True).method.message_count < letters:
        time.sleep(0.1)
    link.close()
    connection.close()


def declare(node: Node, kind: str, names: tuple[str, ...]) -> None:
    """Empty durable queues, each with the quorum queue's limit off where it has one."""
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    for name in names:
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
    connection.close()


def command(folder: Path, *arguments: str) -> tuple[dict[str, object], float, float, float]:
    """Run dlq: its JSON, seconds of wall time, seconds of CPU, peak MiB."""
    started = time.perf_counter()
    process = subprocess.Popen([*DLQ, "-q", "-o", "json", *arguments], cwd=folder, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dlq {' '.join(arguments)} ended with {process.returncode}: {said.decode()}")
    wall = time.perf_counter() - started
    return json.loads(said), wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def settings_of(node: Node, folder: Path) -> None:
    """A dlq.toml for the node."""
    (folder / "dlq.toml").write_text(
        f'archive = "./archive"\n[brokers.shop]\nkind = "rabbitmq"\n'
        f'url = "{node.broker().url}"\npassword_env = "{PASSWORD_VARIABLE}"\n'
        f'management_url = "{node.http}"\n[sources.orders]\nbroker = "shop"\nqueue = "b"\n'
    )


def publisher_alone(node: Node, queue: str, letters: int) -> tuple[float, float]:
    """Seconds of wall and CPU of dlq's publisher without plan and ledger."""
    publisher = RabbitPublisher(node.broker(), "bench", 1000)
    target = Target("queue", queue)
    record = Record("r", "s", "b", "rabbitmq", "q", raw_properties=block(0), body=BODY, body_size=len(BODY))
    ids = [f"{number:032x}" for number in range(letters)]

    def outgoing() -> Iterator[Outgoing]:
        for number, replay_id in enumerate(ids):
            sent_along = {"dlq_replay_id": replay_id, "dlq_replay_lap": "1", "dlq_replay_of": replay_id}
            yield Outgoing(number, record, target, sent_along)

    started, cpu = time.perf_counter(), time.process_time()
    confirmed = sum(sent.outcome == "confirmed" for sent in publisher.publish(outgoing()))
    taken = time.perf_counter() - started, time.process_time() - cpu
    publisher.close()
    if confirmed != letters:
        raise SystemExit(f"only {confirmed} of {letters} letters were confirmed")
    return taken


def applies(folder: Path, letters: int, pairs: int) -> Iterator[tuple[float, float, float]]:
    """The letters go back in parts, by turns without and with a witness; of each part (letters a second,
    CPU microseconds a letter, peak MiB). The start of the interpreter is not in the rate."""
    part = letters // (2 * pairs)
    chosen = ("--to", "queue:c", "--any-advice", "--where", "replay_state is null", "--limit", str(part))
    for witness in ((), ("--witness",)) * pairs:
        plan, *_ = command(folder, "replay", "plan", *chosen, *witness)
        said, _, cpu, peak = command(folder, "replay", "apply", str(plan["plan"]))
        if said["sent"] != part:
            raise SystemExit(f"replay apply sent {said['sent']} of {part}")
        yield part / float(str(said["seconds"])), cpu / part * 1e6, peak


def measure(node: Node, version: str, kind: str, letters: int, pairs: int) -> Iterator[Row]:
    """All measurements on one kind of queue."""

    def row(what: str, seconds: float, cpu: float | None = None, peak: float | None = None) -> Row:
        return Row(version, kind, what, letters / seconds, cpu and cpu / letters * 1e6, peak)

    declare(node, kind, ("a", "b", "c", "d", "e"))
    fill(node, "a", letters)
    yield row("shovel amqp091, queue to queue", shovel(node.url, node.http, "a", "b", letters))
    yield row("stock pika consumer, thrown away", pika_consumer(node.url, "b", letters))
    fill(node, "b", letters)
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as name:
        folder = Path(name)
        settings_of(node, folder)
        said, wall, cpu, peak = command(folder, "pull", "orders", "--mode", "drain")
        check(said, letters)
        yield row("dlq pull --mode drain, to Parquet", wall, cpu, peak)
        parts = list(applies(folder, letters, pairs))
        without, witnessed = parts[::2], parts[1::2]
        ratios = tuple(one[0] / other[0] for one, other in zip(witnessed, without, strict=True))
        yield Row(version, kind, "dlq replay apply, with ledger", *map(median, zip(*without, strict=True)))
        figures = map(median, zip(*witnessed, strict=True))
        yield Row(version, kind, "dlq replay apply, and witness", *figures, ratios=ratios)
    headers = {**HEADERS, "trace": "0" * 32}
    yield row("pika publisher, confirms + mandatory", pika_confirms(node.url, "d", letters, headers, BODY))
    wall, cpu = publisher_alone(node, "e", letters)
    yield row("dlq's publisher alone", wall, cpu)


def check(said: dict[str, object], letters: int) -> None:
    """The pull captured and acknowledged everything."""
    sources = said["sources"]
    assert isinstance(sources, list)
    if sources[0]["acknowledged"] != letters:
        raise SystemExit(f"dlq pull acknowledged {sources[0]['acknowledged']} of {letters}")


def report(rows: list[Row]) -> None:
    """The table; ratios are to the shovel and to pika on the same node and kind of queue."""
    print(
        f"{'version':8}{'queue':9}{'what':40}{'msg/s':>9}{'x shovel':>10}{'x pika':>8}{'CPU us':>8}{'MiB':>6}"
    )
    for row in rows:
        beside = {
            r.what.split(",")[0]: r.rate for r in rows if (r.version, r.kind) == (row.version, row.kind)
        }
        rival = "pika publisher" if "apply" in row.what or "publisher" in row.what else "stock pika consumer"
        ratios = (
            f"{row.rate / beside['shovel amqp091']:10.2f}{row.rate / beside.get(rival, float('nan')):8.2f}"
        )
        cpu = f"{row.cpu_us:8.1f}" if row.cpu_us is not None else " " * 8
        peak = f"{row.peak_mib:6.0f}" if row.peak_mib is not None else ""
        pairs = f"  {median(row.ratios):.2f} of the rate without" if row.ratios else ""
        print(f"{row.version:8}{row.kind:9}{row.what:40}{row.rate:9.0f}{ratios}{cpu}{peak}{pairs}")


def main() -> None:
    """Measure, print, and write the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--versions", nargs="+", default=["3.10", "4"], choices=["3.10", "4"])
    parser.add_argument("--kinds", nargs="+", default=["classic", "quorum"], choices=["classic", "quorum"])
    parser.add_argument("--pairs", type=int, default=5, help="of applies, without a witness and with one")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    wanted = parser.parse_args()
    os.environ[PASSWORD_VARIABLE] = "guest"
    rows: list[Row] = []
    for version in wanted.versions:
        with running(version) as node:
            for kind in wanted.kinds:
                for row in measure(node, version, kind, wanted.letters, wanted.pairs):
                    print(
                        f"# {row.version} {row.kind} {row.what}: {row.rate:.0f}/s",
                        file=sys.stderr,
                        flush=True,
                    )
                    rows.append(row)
    report(rows)
    if wanted.json:
        wanted.json.parent.mkdir(parents=True, exist_ok=True)
        wanted.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
