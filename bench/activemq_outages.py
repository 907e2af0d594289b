"""A network that loses every packet for 28 s in the middle of a replay: does a letter arrive twice?

    python bench/activemq_outages.py [--ways stomp openwire artemis] [--letters 4000] [--seconds 28]

The replay runs in a network of its own (root, `tc`). When it has given up, `reconcile` and `apply` go on outside
of it, while the kernel inside still holds what was not delivered; then the network is there again. Prints for each
way how many letters arrived, and how many of them twice; ends with 1 when one did.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.archives import letter, write_segment
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, broker_of
from support.brokers.activemq.fixtures import Place, settings_of
from support.faults import Archive
from support.servers.outage import Outage

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector

_AFTERWARDS = 30.0
"""Seconds after the outage in which a kernel tries again what it holds."""


def through(way: str, letters: int, seconds: float) -> Counter[str]:
    """Replay id -> how often it arrived."""
    with (
        broker_of(ARTEMIS if way == "artemis" else CLASSIC[-1], "plugins") as broker,
        tempfile.TemporaryDirectory() as folder,
    ):
        settings = settings_of(broker)
        place = Place(broker, settings, ActiveMQConnector(settings), "letters.dead")
        table = {"kind": "activemq", "url": settings.url, "password_env": settings.password_env}
        if way == "openwire":
            table["openwire_url"] = f"tcp://127.0.0.1:{broker.openwire}"
        given = {name: value for name, value in table.items() if value}
        archive = Archive(Path(folder), given, {"s": {"queue": "letters.dead"}})
        kind = place.connector.kind
        some = [letter(n, source="s", broker="b", broker_kind=kind, body=b"%d" % n) for n in range(letters)]
        write_segment(archive.store, "p-0", some)
        plan = archive.plan(to="queue:letters.back")
        with Outage([f"127.0.0.1:{port}" for port in {broker.stomp, broker.openwire}]) as network:
            began: list[float] = []

            def when(sent: int) -> None:
                if sent >= letters // 4 and not began:
                    began.append(time.monotonic())
                    network.begin()

            network.inside(lambda: archive.apply(plan, when))
            ends = threading.Timer(max(0, began[0] + seconds - time.monotonic()), network.end)
            ends.start()
            while archive.states(plan) != {"confirmed": letters}:
                archive.reconcile(plan)
                archive.apply(plan)
            ends.join()
            time.sleep(_AFTERWARDS)
        return Counter(record.headers["dlq_replay_id"] for record in place.drain("letters.back"))


def main() -> int:
    """The exit code."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--ways", nargs="+", default=["stomp", "openwire", "artemis"])
    words.add_argument("--letters", type=int, default=4000)
    words.add_argument("--seconds", type=float, default=28.0)
    given = words.parse_args()
    found = {way: through(way, given.letters, given.seconds) for way in given.ways}
    for way, arrived in found.items():
        twice = sum(count > 1 for count in arrived.values())
        print(f"{way}: {len(arrived)} of {given.letters} arrived, {twice} of them twice")
    return int(any(count > 1 for arrived in found.values() for count in arrived.values()))


if __name__ == "__main__":
    sys.exit(main())
