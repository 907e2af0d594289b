"""The founding story: a failover, healthy messages in the DLQ; "retry all" and "purge" are both wrong.

A Java consumer loses its connection while it works. After the reconnect its connection audit suppresses
messages that it had processed and messages that it had never seen, with the same words. An effect counter
in the listener knows the truth, which the letters do not.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.activemq.broker import CLASSIC, ActiveMq, broker_of
from support.brokers.activemq.fixtures import settings_of
from support.servers.cutter import Cutter
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


@pytest.fixture(params=CLASSIC)
def broker(request: pytest.FixtureRequest) -> Iterator[ActiveMq]:
    with broker_of(request.param) as started:
        yield started


def depths(broker: ActiveMq) -> dict[str, int]:
    return {name: facts.depth for name, facts in Jolokia(settings_of(broker), artemis=False).queues().items()}


@contextmanager
def consuming(broker: ActiveMq, folder: Path) -> Iterator[tuple[Path, Callable[[], Counter[int]]]]:
    """The Java consumer, whose connection is cut while it works: its log, and what it has done by now
    (message number -> how often)."""
    log, effects, cut = folder / "client.log", folder / "effects", folder / "cut"
    with Cutter(f"127.0.0.1:{broker.openwire}") as cutter, log.open("wb") as out:
        files, port = {"cut": str(cut), "effects": str(effects)}, cutter.address.rpartition(":")[2]
        process = broker.java("ActiveMqFailover.java", "orders", log=out, px=port, **files)
        try:
            eventually(cut.exists)
            cutter.cut()
            yield log, lambda: Counter(int(line) for line in effects.read_text().split())
        finally:
            process.kill()
            process.wait()


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    done = preloaded.run(["-o", "jsonl", "query", sql], folder)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_burst_is_explained_and_only_what_was_never_processed_goes_back(
    broker: ActiveMq, tmp_path: Path
) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION.format(url=broker.url, jolokia=broker.jolokia))
    with consuming(broker, tmp_path) as (log, effects):
        # Everything is taken, some of it by the dead-letter queue.
        eventually(lambda: depths(broker).get("orders") == 0 and depths(broker).get(DLQ, 0) > 0)
        settled(lambda: (depths(broker), effects()))
        explain_and_replay(broker, log, effects, tmp_path)


def explain_and_replay(
    broker: ActiveMq, log: Path, effects: Callable[[], Counter[int]], tmp_path: Path
) -> None:
    [pulled] = dlq(tmp_path, "pull", "dead", "--mode", "drain")["sources"]
    said = dlq(tmp_path, "analyze", "--client-log", str(log))
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
    never = seen - set(effects())
    assert never, "letters that the consumer had never seen"
    assert seen - never, "and letters that it had processed, which a retry of all would do again"
    names = ", ".join(f"'{row['record_id']}'" for row in letters if int(row["key"]) in never)
    plan = dlq(tmp_path, "replay", "plan", "--where", f"record_id in ({names})")
    assert plan["selected"] == len(never)
    applied = dlq(tmp_path, "replay", "apply", plan["plan"])
    assert applied["states"]["confirmed"] == len(never)
    assert f"dlq.replay.{plan['plan']}" not in depths(broker), "its markers go with the plan"
    eventually(lambda: depths(broker).get("orders") == 0)

    done = settled(effects)
    assert sorted(done) == list(range(150)), "nothing is lost: the living connection took the replays"
    assert set(done.values()) == {1}, "and nothing was done twice"


def length(letters: str) -> int:
    """How many a range like `ID:…:1:40-42` holds."""
    first, dash, last = letters.rpartition(":")[2].partition("-")
    return int(last) - int(first) + 1 if dash else 1
