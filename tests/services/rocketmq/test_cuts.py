"""Connections that end somewhere between a replay and its answer: every letter arrives, and only once."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.sending import outgoing, shown
from support.sending_contract import until_it_ends
from support.servers.cutter import Cutter
from support.waiting import eventually

from dlq.connectors.base import Outgoing, SendRequest, Target
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.headers.rocketmq_topics import HALF
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
CUTS = 30
WITHIN = ((60, 10**9), (10**9, 40), (10**9, 0))
"""Bytes of requests and of answers that a connection carries: it ends within the request, within the answer,
or before the answer."""


def sent_by_cut_connections(
    rocket: Rocket, letters: Sequence[Outgoing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send each by itself over a connection that ends; again those that are proven not to have arrived."""
    random, cluster = Random(1), rocket.connector.cluster
    before = rocket.connector.bounds([letters[0].target])
    while letters:
        with Cutter(rocket.cluster.addresses["broker-a"]) as cutter, monkeypatch.context() as patch:
            link = lambda _node, brief=False: Link(cutter.address, Access(), brief)  # noqa: E731
            patch.setattr(cluster, "new_link", link)
            for letter in letters:
                cutter.requests, cutter.answers = random.choice(WITHIN)
                publisher = rocket.connector.publisher(SendRequest("plan", 64))
                answers, _ = until_it_ends(publisher, iter([letter]))
                assert [answer.outcome for answer in answers] == ["in_doubt"]
        presence = shown(rocket.connector, letters, before)
        assert {*presence} <= {"sent", "not_sent"}
        letters = [one for one, there in zip(letters, presence, strict=True) if there == "not_sent"]


def test_a_group_gets_each_letter_once_after_many_cuts(
    rocket: Rocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocket.driver.dead_letter(rocket.topic, rocket.group, b"x")
    record, target = rocket.read().records[-1], Target("group", rocket.group)
    rocket.driver.read_retries(rocket.group)
    eventually(lambda: rocket.connector.missing_targets([target]) == {})
    records = [record._replace(properties={"n": str(i)}, raw_properties=None) for i in range(CUTS)]
    sent_by_cut_connections(rocket, outgoing(records, target), monkeypatch)
    eventually(lambda: rocket.driver.end(f"%RETRY%{rocket.group}") >= CUTS)
    messages = rocket.driver.messages(f"%RETRY%{rocket.group}")
    assert sorted(int(parse_properties(m.properties)["n"]) for m in messages) == list(range(CUTS))


def test_a_check_is_resumed_once_after_many_cuts(rocket: Rocket, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {rocket.driver.half(rocket.topic, b"x").key for _ in range(CUTS)}
    source = Source("s", "pay", transactions=True)

    def halves_read() -> dict[str | None, Record]:
        found = [r for r in rocket.read(source=source).records if r.dead_letter_queue == HALF]
        return {r.message_id: r for r in reversed(found) if r.message_id in keys}

    halves = eventually(lambda: found if len(found := halves_read()) == CUTS else {})
    letters = outgoing(halves.values(), Target("resume", rocket.topic))
    sent_by_cut_connections(rocket, letters, monkeypatch)
    copies = [parse_properties(m.properties) for m in rocket.driver.messages(HALF)]
    resumed = Counter(c["UNIQ_KEY"] for c in copies if c.get("TRANSACTION_CHECK_TIMES") == "0")
    assert {key: resumed[key] for key in keys} == dict.fromkeys(keys, 1)
