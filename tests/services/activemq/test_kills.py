"""A broker or a `dlq` that is killed, by STOMP and by OpenWire: nothing is lost, nothing is doubled."""

import collections
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.archives import letters_in
from support.brokers.activemq.broker import ARTEMIS, CLASSIC
from support.brokers.activemq.fixtures import WAYS, Place, by_openwire, on_all
from support.brokers.activemq.sending import outgoing
from support.sending_contract import proven
from support.waiting import PATIENCE

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Outgoing, Search, SendRequest, Sent
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.runtime import patience

pytestmark = pytest.mark.activemq

by_each_way = pytest.mark.parametrize(("stomp_broker", "way"), [
    (ARTEMIS, "openwire"), (CLASSIC[0], "openwire"), (CLASSIC[-1], "stomp"), (ARTEMIS, "stomp"),
], indirect=["stomp_broker"])  # fmt: skip
"""On Artemis OpenWire means both."""


def finish(here: Place, store: LocalStore, letters: int) -> None:
    """Pull until nothing comes: while Artemis gives back what a dead client held, it tells of less."""
    deadline, came = time.monotonic() + PATIENCE, True
    while came or len(letters_in(store)) < letters:
        assert time.monotonic() < deadline
        last = pull(store, ActiveMQConnector(here.settings), here.request().source, PullOptions("drain"))
        came = last.captured + last.recaptured > 0
    assert sorted(one.body for one in letters_in(store)) == sorted(b"%d" % n for n in range(letters))
    assert here.drain() == []


@by_each_way
def test_a_broker_killed_in_mid_drain_loses_and_doubles_nothing(
    stomp: Place, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = WAYS[way](stomp)
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


@on_all
def test_a_pull_killed_in_mid_drain_loses_and_doubles_nothing(stomp: Place, tmp_path: Path) -> None:
    here = by_openwire(stomp)
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


@by_each_way
def test_a_broker_killed_in_mid_replay_leaves_nothing_unknown(stomp: Place, way: str) -> None:
    here, plan = WAYS[way](stomp), stomp.queue
    here.send(*[b"%d" % n for n in range(3000)])
    letters = outgoing(here.drain(), here.back)
    said: list[Sent] = []

    def given() -> Iterator[Outgoing]:
        for letter in letters:
            if letter.number == 2000:
                here.broker.kill()
            yield letter

    publisher = here.connector.publisher(SendRequest(plan, 1000))
    before = {**publisher.anchor, **here.connector.bounds([here.back])}
    with pytest.raises(ConnectionLost):
        collections.deque(map(said.append, publisher.publish(given())), maxlen=0)
    publisher.close()
    here.broker.start()
    numbers = {o: {s.number for s in said if s.outcome == o} for o in ("confirmed", "in_doubt")}
    assert len(numbers["confirmed"]) >= 1000
    assert numbers["in_doubt"]
    search = Search(plan, [letters[n] for n in numbers["in_doubt"]], 0, before)
    found = proven(lambda: ActiveMQConnector(here.settings).find(search))
    known = numbers["confirmed"] | {n for n, presence in found.items() if presence == "sent"}
    arrived = [record.headers["dlq_replay_id"] for record in here.drain(here.back.name)]
    assert sorted(arrived) == sorted(letters[n].provenance["dlq_replay_id"] for n in known)
