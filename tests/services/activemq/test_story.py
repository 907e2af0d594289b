"""The founding story: a failover, healthy messages in the DLQ; "retry all" and "purge" are both wrong.

A Java consumer loses its connection while it works. After the reconnect its connection audit suppresses
messages that it had processed and messages that it had never seen, with the same words. An effect counter
in the listener knows the truth, which the letters do not.
"""

import contextlib
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.activemq.broker import CLASSIC, ActiveMq, broker_of
from support.brokers.activemq.fixtures import settings_of
from support.waiting import eventually, settled
from support.wire_builders import dlq

from dlq.connectors.activemq.look.jolokia import Jolokia

pytestmark = pytest.mark.activemq

DLQ = "ActiveMQ.DLQ"
CONFIGURATION = """\
archive = "archive"
[brokers.legacy]
kind = "activemq"
url = "{url}"
jolokia_url = "{jolokia}"
[sources.dead]
broker = "legacy"
queue = "ActiveMQ.DLQ"
key = "header:n"
"""


@pytest.fixture(scope="module", params=CLASSIC)
def broker(request: pytest.FixtureRequest) -> Iterator[ActiveMq]:
    with broker_of(request.param) as started:
        yield started


class Proxy:
    """A way to the broker whose connections can all be cut at once."""

    def __init__(self, port: int) -> None:
        self._port, self._open = port, list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()

    def cut(self) -> None:
        """End all connections; new ones are let through."""
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)


def depths(broker: ActiveMq) -> dict[str, int]:
    return {name: facts.depth for name, facts in Jolokia(settings_of(broker), artemis=False).queues().items()}


def wait_until_quiet(broker: ActiveMq, consumer: "Consumer") -> None:
    """Everything is taken, some of it by the dead-letter queue."""
    eventually(lambda: depths(broker).get("orders") == 0 and depths(broker).get(DLQ, 0) > 0)
    settled(lambda: (depths(broker), consumer.effects()))


class Consumer:
    """The Java consumer, its log, what it has done, and its connection to be cut, once or twice."""

    def __init__(self, broker: ActiveMq, folder: Path, mode: str = "individual", cuts: int = 1) -> None:
        self.log, self._effects, cut = folder / "client.log", folder / "effects", folder / "cut"
        proxy = Proxy(broker.openwire)
        how = {"cut": str(cut), "effects": str(self._effects), "mode": mode, "cuts": cuts}
        with self.log.open("wb") as log:
            self.process = broker.java("ActiveMqFailover.java", "orders", log=log, px=proxy.port, **how)
        for number in range(1, cuts + 1):
            eventually((folder / f"cut.{number}").exists)
            time.sleep(0.3)
            proxy.cut()

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()

    def effects(self) -> Counter[int]:
        """Message number -> how often it was processed until now."""
        return Counter(int(line) for line in self._effects.read_text().split())


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    done = preloaded.run(["-o", "jsonl", "query", sql], folder)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_burst_is_explained_and_only_what_was_never_processed_goes_back(
    broker: ActiveMq, tmp_path: Path
) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION.format(url=broker.url, jolokia=broker.jolokia))
    consumer = Consumer(broker, tmp_path)
    try:
        explain_and_replay(broker, consumer, tmp_path)
    finally:
        consumer.stop()


def explain_and_replay(broker: ActiveMq, consumer: Consumer, tmp_path: Path) -> None:
    wait_until_quiet(broker, consumer)
    [pulled] = dlq(tmp_path, "pull", "dead", "--mode", "drain")["sources"]
    said = dlq(tmp_path, "analyze", "--client-log", str(consumer.log))
    assert said["causes"] == {"suppressed_duplicate": pulled["captured"]}
    assert said["client_log"] == {
        "explained": pulled["captured"],
        "letters_without_line": 0,
        "lines_without_letter": 0,
    }
    letters = rows(tmp_path, "SELECT record_id, key, advice, incident_id, advice_reason FROM letters")
    assert {row["advice"] for row in letters} == {"check_first"}
    assert len({row["incident_id"] for row in letters}) == 1
    assert all("and it had reconnected to tcp://127.0.0.1" in row["advice_reason"] for row in letters)
    [incident] = rows(tmp_path, "SELECT * FROM incidents JOIN bursts USING (incident_id)")
    assert sum(map(length, incident["ranges"])) == len(letters)
    assert incident["size"] == pulled["captured"]
    assert incident["start"] <= incident["end"]
    listed = rows(tmp_path, "SELECT state, reconnected_to FROM client_log")
    assert {row["state"] for row in listed} == {"explained"}

    by_default = dlq(tmp_path, "replay", "plan", "--where", "true")
    assert (by_default["selected"], by_default["left_out"]) == (0, {"check_first": len(letters)})

    # What the operator looks up in the business data: here, the effects of the consumer.
    seen = {int(row["key"]) for row in letters}
    never = seen - set(consumer.effects())
    assert never, "letters that the consumer had never seen"
    assert seen - never, "and letters that it had processed, which a retry of all would do again"
    names = ", ".join(f"'{row['record_id']}'" for row in letters if int(row["key"]) in never)
    plan = dlq(tmp_path, "replay", "plan", "--where", f"record_id in ({names})")
    assert plan["selected"] == len(never)
    applied = dlq(tmp_path, "replay", "apply", plan["plan"])
    assert applied["states"]["confirmed"] == len(never)
    assert f"dlq.replay.{plan['plan']}" not in depths(broker), "its markers go with the plan"
    eventually(lambda: depths(broker).get("orders") == 0)

    effects = settled(consumer.effects)
    assert sorted(effects) == list(range(150)), "nothing is lost: the living connection took the replays"
    assert set(effects.values()) == {1}, "and nothing was done twice"


@pytest.mark.parametrize("mode", ["individual", "transacted"])
def test_after_two_cuts_a_retry_of_all_loses_nothing_and_doubles_just_what_was_done(
    broker: ActiveMq, tmp_path: Path, mode: str
) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION.format(url=broker.url, jolokia=broker.jolokia))
    consumer = Consumer(broker, tmp_path, mode, cuts=2)
    try:
        retry_all(broker, consumer, tmp_path)
    finally:
        consumer.stop()


def retry_all(broker: ActiveMq, consumer: Consumer, tmp_path: Path) -> None:
    wait_until_quiet(broker, consumer)
    before = consumer.effects()
    dlq(tmp_path, "pull", "dead", "--mode", "drain")
    seen = {int(row["key"]) for row in rows(tmp_path, "SELECT key FROM letters")}
    assert seen | set(before) == set(range(150)), "every message was done or is a letter"
    assert seen - set(before), "a purge of all would lose these"

    plan = dlq(tmp_path, "replay", "plan", "--where", "true", "--any-advice")
    assert dlq(tmp_path, "replay", "apply", plan["plan"])["states"]["confirmed"] == len(seen)
    eventually(lambda: depths(broker).get("orders") == 0)

    after = settled(consumer.effects)
    assert set(after) == set(range(150)), "nothing is lost"
    assert after - before == Counter(seen), "and each letter was done once more, done before or not"


def length(letters: str) -> int:
    """How many a range like `ID:…:1:40-42` holds."""
    first, dash, last = letters.rpartition(":")[2].partition("-")
    return int(last) - int(first) + 1 if dash else 1
