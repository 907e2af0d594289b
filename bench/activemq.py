"""Reading from and sending to ActiveMQ Classic, against a Java consumer and producer, in one run on the same broker.

    python bench/activemq.py [--letters 100000] [--versions 5.18.6 6.3.1]

Letters are 1 KiB persistent BytesMessages with a failure cause. Rates are of the work, durable Parquet and
ledger included, without the start of the interpreter or the JVM; `whole` is the time of dlq's whole command.
`cpu` is in microseconds a letter, of the client's whole process and of the broker: it counts where others
use the machine, too.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.activemq.broker import CLASSIC, ActiveMq, Artemis, install
from support.brokers.activemq.fixtures import settings_of

from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.stomp.codec import encode
from dlq.connectors.activemq.stomp.link import Link

Told = TypeVar("Told")
HEADERS = {
    "persistent": "true",
    "original-destination": "/queue/orders",
    "originalExpiration": "0",
    "dlqDeliveryFailureCause": "java.lang.Throwable: Suppressing duplicate delivery on connection, "
    "consumer ID:app1-36050-1795195175398-1:9:1:1",
    "tenant": "42",
}
CONFIGURATION = """\
archive = "{folder}/archive"
[brokers.legacy]
kind = "activemq"
url = "{url}"
{more}
[sources.bench]
broker = "legacy"
queue = "bench.dlq"
"""


def fill(broker: ActiveMQBroker, queue: str, letters: int) -> None:
    """Put letters there in transactions of a thousand."""
    link = Link(broker)
    body = b"x" * 1024
    for at in range(0, letters, 1000):
        name = f"t{at}"
        headers = {**_destination(link, queue), "transaction": name, **HEADERS}
        frames = [encode("SEND", headers, body) for _ in range(min(1000, letters - at))]
        link.send(encode("BEGIN", {"transaction": name}) + b"".join(frames))
        link.request("COMMIT", {"transaction": name})
    link.close()


def _destination(link: Link, queue: str) -> dict[str, str]:
    named = {"destination": queue, "destination-type": "ANYCAST", "subscription-type": "ANYCAST"}
    return named if link.artemis else {"destination": f"/queue/{queue}"}


def empty(broker: ActiveMQBroker, queue: str) -> None:
    """Take out what is there, until nothing comes for a second: a limit of memory holds producers back."""
    link = Link(broker)
    link.request("SUBSCRIBE", {**_destination(link, queue), "id": link.token, "ack": "auto"})
    while link.receive(1.0):
        pass
    link.close()


def java(broker: ActiveMq, what: str, letters: int, queue: str) -> float:
    """Letters per second of the rival."""
    source = Path(__file__).parent / "ActiveMqSpeed.java"
    text = source.read_text()
    program = broker.folder / source.name
    home = install(CLASSIC[-1]) if broker.artemis else broker.home  # Artemis speaks to Classic's client
    program.write_text(text if broker.version.startswith("5.") else text.replace("javax.jms", "jakarta.jms"))
    login = f"&jms.userName={broker.user}&jms.password={broker.password}" if broker.user else ""
    command = [
        "java",
        f"-Dow={broker.openwire}",
        "-cp",
        f"{home}/*",
        str(program),
        what,
        str(letters),
        queue,
    ]
    done = subprocess.run(
        command,
        check=True,
        env={**os.environ, "LOGIN": login},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return float(done.stdout.split()[-1])


def dlq(folder: Path, *arguments: str) -> tuple[dict[str, Any], float]:
    """The command's JSON and its wall time."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "dlq.cli", "-c", f"{folder}/dlq.toml", "-o", "json", "-q", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
    if done.returncode:
        raise SystemExit(f"dlq {' '.join(arguments)} ended with {done.returncode}: {done.stdout}")
    return json.loads(done.stdout), time.perf_counter() - began


def configure(folder: Path, broker: ActiveMq, openwire: bool = False) -> None:
    """Write the configuration for the archive in this folder."""
    known = settings_of(broker)
    settings = {
        "password_env": known.password_env,
        "jolokia_url": known.jolokia_url,
        "openwire_url": f"tcp://127.0.0.1:{broker.openwire}" if openwire else None,
    }
    more = "\n".join(f'{name} = "{value}"' for name, value in settings.items() if value)
    text = CONFIGURATION.format(folder=folder, url=known.url, more=more)
    (folder / "dlq.toml").write_text(text)


def planned(folder: Path, queue: str) -> str:
    """A plan by which everything in this folder's archive goes to a queue."""
    plan, _ = dlq(folder, "replay", "plan", "--where", "true", "--any-advice", "--to", f"queue:{queue}")
    return str(plan["plan"])


def with_cpu(broker: ActiveMq, letters: int, work: Callable[[], Told]) -> tuple[Told, dict[str, int]]:
    """What the work says, and the microseconds of CPU that a letter took its processes and the broker."""
    before = _cpu(broker)
    told = work()
    spent = [round((now - then) / letters * 1e6) for now, then in zip(_cpu(broker), before, strict=True)]
    return told, dict(zip(("client", "broker"), spent, strict=True))


def _cpu(broker: ActiveMq) -> tuple[float, float]:
    """Seconds of all children that have ended, and of the broker."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert broker.process is not None
    ticks = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return ended.ru_utime + ended.ru_stime, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def measure(version: str, letters: int) -> dict[str, object]:
    """All figures on one broker."""
    folder = Path(tempfile.mkdtemp(prefix="dlq-bench-"))
    typed = folder / "openwire"
    new = Artemis(heap="1g") if version == "artemis" else ActiveMq(version, heap="1g", jvm=[])
    with new as broker:
        configure(folder, broker)
        known = settings_of(broker)
        fill(known, "bench.java", letters)
        received, cpu_java = with_cpu(broker, letters, lambda: java(broker, "receive", letters, "bench.java"))
        fill(known, "bench.dlq", letters)
        pulled, whole_pull = dlq(folder, "pull", "bench", "--mode", "drain")
        typed.mkdir()
        configure(typed, broker, openwire=True)
        fill(known, "bench.dlq", letters)
        (pulled_openwire, _), cpu_drain = with_cpu(
            broker, letters, lambda: dlq(typed, "pull", "bench", "--mode", "drain")
        )
        sent, cpu_send = with_cpu(broker, letters, lambda: java(broker, "send", letters, "bench.sent"))
        java(broker, "receive", letters, "bench.sent")  # else the broker's memory limit holds producers back
        applied, whole_apply = dlq(folder, "replay", "apply", planned(folder, "bench.back"))
        java(broker, "receive", letters, "bench.back")
        plan = planned(typed, "bench.typed")
        (by_openwire, whole_openwire), cpu_apply = with_cpu(
            broker, letters, lambda: dlq(typed, "replay", "apply", plan)
        )
    taken, taken_openwire = (letters / each["sources"][0]["seconds"] for each in (pulled, pulled_openwire))
    replayed, replayed_openwire = letters / applied["seconds"], letters / by_openwire["seconds"]
    shutil.rmtree(folder)
    return {
        "version": version,
        "letters": letters,
        "java_receive": round(received),
        "dlq_drain": round(taken),
        "dlq_drain_openwire": round(taken_openwire),
        "drain_ratio": round(taken / received, 2),
        "drain_ratio_openwire": round(taken_openwire / received, 2),
        "drain_ratio_whole": round(letters / whole_pull / received, 2),
        "java_send": round(sent),
        "dlq_replay_stomp": round(replayed),
        "dlq_replay_openwire": round(replayed_openwire),
        "stomp_ratio": round(replayed / sent, 2),
        "openwire_ratio": round(replayed_openwire / sent, 2),
        "stomp_ratio_whole": round(letters / whole_apply / sent, 2),
        "openwire_ratio_whole": round(letters / whole_openwire / sent, 2),
        "cpu": {"receive": cpu_java, "drain": cpu_drain, "send": cpu_send, "apply": cpu_apply},
        "pull": pulled["sources"],
        "states": [applied["states"], by_openwire["states"]],
    }


def main() -> None:
    """Print one JSON line a version."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--versions", nargs="*", default=list(CLASSIC))
    options = parser.parse_args()
    for version in options.versions:
        print(json.dumps(measure(version, options.letters)), flush=True)


if __name__ == "__main__":
    main()
