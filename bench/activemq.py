"""Reading from and sending to ActiveMQ Classic, against a Java consumer and producer, in one run on the same broker.

    python bench/activemq.py [--letters 100000] [--versions 5.18.6 6.3.1]

Letters are 1 KiB persistent BytesMessages with a failure cause. Rates are of the work, durable Parquet and
ledger included, without the start of the interpreter or the JVM; `whole` is the time of dlq's whole command.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.brokers.activemq.broker import CLASSIC, ActiveMq

from dlq.connectors.activemq.description import ActiveMQBroker
from dlq.connectors.activemq.stomp import encode
from dlq.connectors.activemq.stomp_connection import Link

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
{openwire}
jolokia_url = "{jolokia}"
[sources.bench]
broker = "legacy"
queue = "bench.dlq"
"""


def fill(broker: ActiveMq, queue: str, letters: int) -> None:
    """Put letters there in transactions of a thousand."""
    link = Link(ActiveMQBroker("legacy", "activemq", url=broker.url))
    body = b"x" * 1024
    for at in range(0, letters, 1000):
        name = f"t{at}"
        headers = {"destination": f"/queue/{queue}", "transaction": name, **HEADERS}
        frames = [encode("SEND", headers, body) for _ in range(min(1000, letters - at))]
        link.send(encode("BEGIN", {"transaction": name}) + b"".join(frames))
        link.request("COMMIT", {"transaction": name})
    link.close()


def java(broker: ActiveMq, what: str, letters: int, queue: str) -> float:
    """Letters per second of the rival."""
    source = Path(__file__).parent / "ActiveMqSpeed.java"
    text = source.read_text()
    program = broker.folder / source.name
    program.write_text(text if broker.version.startswith("5.") else text.replace("javax.jms", "jakarta.jms"))
    command = [
        "java",
        f"-Dow={broker.openwire}",
        "-cp",
        f"{broker.home}/*",
        str(program),
        what,
        str(letters),
        queue,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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
    line = f'openwire_url = "tcp://127.0.0.1:{broker.openwire}"' if openwire else ""
    text = CONFIGURATION.format(folder=folder, url=broker.url, openwire=line, jolokia=broker.jolokia)
    (folder / "dlq.toml").write_text(text)


def replay(folder: Path, queue: str) -> tuple[dict[str, Any], float]:
    """Everything in this folder's archive goes to a queue; what apply says, and its wall time."""
    plan, _ = dlq(folder, "replay", "plan", "--where", "true", "--any-advice", "--to", f"queue:{queue}")
    return dlq(folder, "replay", "apply", str(plan["plan"]))


def measure(version: str, letters: int) -> dict[str, object]:
    """All figures on one broker."""
    folder = Path(tempfile.mkdtemp(prefix="dlq-bench-"))
    typed = folder / "openwire"
    with ActiveMq(version, heap="1g", jvm=[]) as broker:
        configure(folder, broker)
        fill(broker, "bench.java", letters)
        received = java(broker, "receive", letters, "bench.java")
        fill(broker, "bench.dlq", letters)
        pulled, whole_pull = dlq(folder, "pull", "bench", "--mode", "drain")
        typed.mkdir()
        configure(typed, broker, openwire=True)
        fill(broker, "bench.dlq", letters)
        pulled_openwire, _ = dlq(typed, "pull", "bench", "--mode", "drain")
        sent = java(broker, "send", letters, "bench.sent")
        java(broker, "receive", letters, "bench.sent")  # else the broker's memory limit holds producers back
        applied, whole_apply = replay(folder, "bench.back")
        java(broker, "receive", letters, "bench.back")
        by_openwire, whole_openwire = replay(typed, "bench.typed")
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
