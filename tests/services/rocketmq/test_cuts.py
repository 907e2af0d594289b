"""Connections that end somewhere between a replay and its answer: every letter arrives, and only once."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from support.brokers.rocketmq.fixtures import Rocket
from support.servers.cutter import Cutter
from support.waiting import eventually

from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.clock import now
from dlq.core.errors import ConnectionLost
from dlq.core.record import Record
from dlq.core.rocketmq_topics import HALF
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
WITHIN = ((60, 10**9), (10**9, 40), (10**9, 0))
"""Bytes of requests and of answers that a connection carries: it ends within the request, within the answer,
or before the answer."""


def dead(rocket: Rocket) -> Record:
    rocket.driver.dead_letter(rocket.topic, rocket.group, b"x")
    return rocket.read().records[-1]


def outgoing(letters: Sequence[Record], target: Target) -> list[Outgoing]:
    common = {"dlq_replay_lap": "1", "dlq_replay_of": "0" * 32}
    return [
        Outgoing(i, record, target, {"dlq_replay_id": f"{i:032x}", **common})
        for i, record in enumerate(letters)
    ]


def numbered(record: Record, count: int) -> list[Record]:
    return [record._replace(properties={"n": str(i)}, raw_properties=None) for i in range(count)]


def one_try(rocket: Rocket, letters: list[Outgoing]) -> list[str]:
    """The outcomes of those that were taken, by number."""
    publisher = rocket.connector.publisher(SendRequest("plan", 64))
    taken: list[Outgoing] = []
    found: dict[int, str] = {}
    with contextlib.suppress(ConnectionLost):
        for sent in publisher.publish(taken.append(x) or x for x in letters):  # type: ignore[func-returns-value]
            found[sent.number] = sent.outcome
    publisher.close()
    return [found[letter.number] for letter in taken]


def sent_by_cut_connections(rocket: Rocket, letters: list[Outgoing], monkeypatch: pytest.MonkeyPatch) -> None:
    """Send each by itself over a connection that ends; again those that are proven not to have arrived."""
    random, cluster = Random(1), rocket.connector.cluster
    before = rocket.connector.bounds([letters[0].target])
    while letters:
        with Cutter(rocket.cluster.addresses["broker-a"]) as cutter, monkeypatch.context() as patch:
            link = lambda _node, brief=False: Link(cutter.address, Access(), brief)  # noqa: E731
            patch.setattr(cluster, "new_link", link)
            for letter in letters:
                cutter.requests, cutter.answers = random.choice(WITHIN)
                assert one_try(rocket, [letter]) == ["in_doubt"]
        found = rocket.connector.find(Search("plan", letters, now(), before)).shown
        assert set(found.values()) <= {"sent", "not_sent"}
        letters = [letter for letter in letters if found[letter.number] == "not_sent"]


def test_a_group_gets_each_letter_once_after_a_hundred_cuts(
    rocket: Rocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, target = dead(rocket), Target("group", rocket.group)
    rocket.driver.read_retries(rocket.group)
    eventually(lambda: rocket.connector.consumers([target])[target])
    sent_by_cut_connections(rocket, outgoing(numbered(record, 100), target), monkeypatch)
    messages = rocket.driver.messages(f"%RETRY%{rocket.group}")
    assert sorted(int(parse_properties(m.properties)["n"]) for m in messages) == list(range(100))


def test_a_check_is_resumed_once_after_a_hundred_cuts(
    rocket: Rocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {rocket.driver.half(rocket.topic, b"x").key for _ in range(100)}
    source = Source("s", "pay", transactions=True)
    found = eventually(lambda: (seen := rocket.read(source=source).records) and seen)
    halves = {
        r.message_id: r for r in reversed(found) if r.message_id in keys and r.dead_letter_queue == HALF
    }
    assert len(halves) == 100
    letters = outgoing(list(halves.values()), Target("resume", rocket.topic))
    sent_by_cut_connections(rocket, letters, monkeypatch)
    copies = [parse_properties(m.properties) for m in rocket.driver.messages(HALF)]
    resumed = Counter(c["UNIQ_KEY"] for c in copies if c.get("TRANSACTION_CHECK_TIMES") == "0")
    assert {key: resumed[key] for key in keys} == dict.fromkeys(keys, 1)
