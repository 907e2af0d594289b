"""A broker or a `dlq` that is killed, by STOMP and by OpenWire: nothing is lost, nothing is doubled."""

import collections
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support import preloaded
from support.brokers.activemq.fixtures import Place, by_openwire, on_all
from support.brokers.activemq.sending import outgoing
from support.waiting import PATIENCE

from dlq.archive import manifests
from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Outgoing, Search, SendRequest, Sent, Target
from dlq.core import patience
from dlq.core.errors import BrokerError, ConnectionLost

pytestmark = [pytest.mark.activemq, on_all]

WAYS: dict[str, Callable[[Place], Place]] = {"stomp": lambda place: place, "openwire": by_openwire}


@pytest.fixture(params=WAYS)
def here(request: pytest.FixtureRequest, stomp: Place) -> Place:
    """The place by one protocol; on Artemis OpenWire means both."""
    return WAYS[request.param](stomp)


def bodies(store: LocalStore) -> list[bytes]:
    """The bodies of all committed letters."""
    tables = [
        pq.read_table(store.url(m.segment), columns=["body"])
        for m in manifests.list_committed(store)
        if m.rows
    ]
    return [body for table in tables for body in table.column("body").to_pylist()]


def finish(here: Place, store: LocalStore, letters: int) -> None:
    """Pull until nothing comes: while Artemis gives back what a dead client held, it tells of less."""
    deadline, came = time.monotonic() + PATIENCE, True
    while came or len(bodies(store)) < letters:
        assert time.monotonic() < deadline
        last = pull(store, ActiveMQConnector(here.settings), here.request().source, PullOptions("drain"))
        came = last.captured + last.recaptured > 0
    assert sorted(bodies(store)) == sorted(b"%d" % n for n in range(letters))
    assert here.drain() == []


def test_a_broker_killed_in_mid_drain_loses_and_doubles_nothing(
    here: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "RESTART", 1.0)
    here.send(*[b"%d" % n for n in range(4000)])
    store = LocalStore(str(tmp_path / "archive"))
    alive = True

    def progress(tally: Any, _whole: int | None) -> None:
        nonlocal alive
        if alive and tally.delivered >= 1500:
            alive = False
            here.broker.kill()

    killed = pull(store, here.connector, here.request().source, PullOptions("drain"), progress)
    here.broker.start()
    assert isinstance(killed.error, BrokerError)
    finish(here, store, 4000)


@pytest.mark.parametrize("here", ["openwire"], indirect=True)
def test_a_pull_killed_in_mid_drain_loses_and_doubles_nothing(here: Place, tmp_path: Path) -> None:
    here.send(*[b"%d" % n for n in range(6000)])
    named = ("kind", "url", "openwire_url", "password_env")
    told = {name: value for name in named if (value := getattr(here.settings, name))}
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in told.items())
    (tmp_path / "dlq.toml").write_text(
        f'[sources.letters]\nbroker = "legacy"\nqueue = "{here.queue}"\n[brokers.legacy]\n{settings}'
    )
    running = preloaded.start(["pull", "--mode", "drain"], tmp_path)
    while running.poll() is None and not list(tmp_path.glob("archive/manifests/*.json")):
        pass
    running.kill()
    running.communicate(timeout=PATIENCE)
    finish(here, LocalStore(str(tmp_path / "archive")), 6000)


def test_a_broker_killed_in_mid_replay_leaves_nothing_unknown(here: Place) -> None:
    here.send(*[b"%d" % n for n in range(3000)])
    plan, back = here.queue, f"{here.queue}.back"
    letters = outgoing(here.drain(), Target("queue", back))
    said: list[Sent] = []

    def given() -> Iterator[Outgoing]:
        for letter in letters:
            if letter.number == 2000:
                here.broker.kill()
            yield letter

    publisher = here.connector.publisher(SendRequest(plan, 1000))
    before = {**publisher.anchor, **here.connector.bounds([Target("queue", back)])}
    with pytest.raises(ConnectionLost):
        collections.deque(map(said.append, publisher.publish(given())), maxlen=0)
    publisher.close()
    here.broker.start()
    numbers = {o: {s.number for s in said if s.outcome == o} for o in ("confirmed", "in_doubt")}
    assert len(numbers["confirmed"]) >= 1000
    assert numbers["in_doubt"]
    found = (
        ActiveMQConnector(here.settings)
        .find(Search(plan, [letters[n] for n in numbers["in_doubt"]], 0, before))
        .shown
    )
    known = numbers["confirmed"] | {n for n, presence in found.items() if presence == "sent"}
    arrived = [record.headers["dlq_replay_id"] for record in here.drain(back)]
    assert sorted(arrived) == sorted(letters[n].provenance["dlq_replay_id"] for n in known)
