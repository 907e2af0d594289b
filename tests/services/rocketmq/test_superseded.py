"""A plan on a real RocketMQ leaves out what a newer message of its key has replaced, and only that."""

import json
import random
from pathlib import Path

import pytest
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import eventually
from support.wire_builders import configure, dlq

from dlq.connectors.newer import Bound, NewerProof, NewerSearch, Sought
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.read.outcomes import messages_in, query_fields
from dlq.core.keys import key_reader
from dlq.core.record import Record

pytestmark = pytest.mark.rocketmq
ENTITIES, VERSIONS = 40, 6


class LastWriteWins:
    """A consumer of versions of entities. The first time it lets one of ten die."""

    def __init__(self, rocket: Rocket) -> None:
        self._rocket, self._chance, self._reached = rocket, random.Random(5), 0
        self.state: dict[str, int] = {}
        self.died: list[tuple[str, int]] = []

    def consume(self, share_that_dies: float = 0.0) -> None:
        """All that is new, and commit."""
        for message in self._rocket.driver.messages(self._rocket.topic, start=self._reached):
            key, version = parse_properties(message.properties)["KEYS"], json.loads(message.body)["version"]
            if self._chance.random() < share_that_dies:
                self.died.append((key, version))
                self._rocket.driver.send_back(message, self._rocket.group)
            else:
                self.state[key] = version
        self._reached = self._rocket.driver.end(self._rocket.topic)
        self._rocket.driver.commit_offset(self._rocket.group, self._rocket.topic, self._reached)


def test_after_a_replay_no_entity_is_older_than_its_newest_message(rocket: Rocket, tmp_path: Path) -> None:
    """One in ten dies, the last version or an earlier one."""
    for number in range(ENTITIES * VERSIONS):
        properties = {"UNIQ_KEY": unique_key(), "KEYS": f"entity-{number % ENTITIES}"}
        rocket.driver.send(rocket.topic, b'{"version": %d}' % (number // ENTITIES), properties)
    eventually(lambda: len(rocket.driver.messages(rocket.topic)) == ENTITIES * VERSIONS)
    consumer = LastWriteWins(rocket)
    consumer.consume(share_that_dies=0.1)
    assert {version for version in consumer.state.values() if version < VERSIONS - 1}
    eventually(lambda: rocket.driver.end(rocket.dead) == len(consumer.died))

    source = f'group = "{rocket.group}"\nkey = "property:KEYS"\nmode = "drain"'
    configure(tmp_path, f'kind = "rocketmq"\nurl = "{rocket.cluster.url}"', source)
    dlq(tmp_path, "pull")
    plan = dlq(tmp_path, "replay", "plan", "--fixed", "--to", "origin")
    last = {key: max(version for dead, version in consumer.died if dead == key) for key, _ in consumer.died}
    wanted = {(key, version) for key, version in last.items() if consumer.state.get(key, -1) < version}
    assert plan["not_looked_at"] == {}
    assert (plan["selected"], plan["superseded"]) == (len(wanted), len(consumer.died) - len(wanted))
    proofs = [why for why in plan["superseded_by"].values() if rocket.topic in why]
    assert proofs
    assert all(f"{rocket.group} has consumed it" in why for why in proofs)
    assert dlq(tmp_path, "replay", "apply", plan["plan"])["states"]["confirmed"] == len(wanted)
    eventually(lambda: rocket.driver.end(rocket.topic) == ENTITIES * VERSIONS + len(wanted))
    consumer.consume()
    assert set(consumer.state.values()) == {VERSIONS - 1}


def ask(rocket: Rocket, records: list[Record], died: set[tuple[str | None, str]] | None = None) -> NewerProof:
    reads = key_reader("property:KEYS")
    letters = (Sought(one._replace(key=one.properties.get("KEYS")), reads) for one in records)
    return rocket.connector.newer(
        NewerSearch(letters, died or set(), Bound(60, 10**6, 2**30), lambda _: None)
    )


def test_the_index_says_what_is_newer_lives_and_is_consumed(rocket: Rocket) -> None:
    keys = ["replaced", "replayed", "died again", "alone", ""]
    for key in keys:
        rocket.driver.dead_letter(rocket.topic, rocket.group, b"1", {"KEYS": key} if key else {})
    again = unique_key()
    rocket.driver.send(rocket.topic, b"2", {"UNIQ_KEY": unique_key(), "KEYS": "replaced"})
    rocket.driver.send(rocket.topic, b"2", {"UNIQ_KEY": again, "KEYS": "died again"})
    marks = {"UNIQ_KEY": unique_key(), "KEYS": "replayed", "dlq_replay_of": "an older one"}
    rocket.driver.send(rocket.topic, b"0", marks)
    eventually(lambda: indexed_under(rocket, "replayed") == 2)
    records = rocket.read().records
    rocket.driver.commit_offset(rocket.group, rocket.topic, 6)
    proof = ask(rocket, records, {(rocket.group, again)})
    assert {n: (one.offset, one.is_consumed) for n, one in proof.newer.items()} == {0: (5, True)}
    assert proof.unlooked == {4: "it has no KEYS, by which an index finds messages"}
    gone = records[3]._replace(message_id=unique_key())
    assert "no index shows its own message" in ask(rocket, [gone]).unlooked[0]


def test_an_index_that_is_not_built_any_more_proves_nothing(rocket: Rocket) -> None:
    rocket.driver.dead_letter(rocket.topic, rocket.group, b"1", {"KEYS": "alone"})
    eventually(lambda: indexed_under(rocket, "alone") == 1)
    [record] = rocket.read().records
    assert ask(rocket, [record]).unlooked == {}
    rocket.driver.set("messageIndexEnable", "false")
    try:
        rocket.driver.send(rocket.topic, b"2", {"UNIQ_KEY": unique_key(), "KEYS": "alone"})
        eventually(lambda: rocket.driver.end(rocket.topic) == 2)
    finally:
        rocket.driver.set("messageIndexEnable", "true")
    assert "lacks the newest message" in ask(rocket, [record]).unlooked[0]


def indexed_under(rocket: Rocket, key: str) -> int:
    """How many messages the broker's index has under a key."""
    answer = rocket.driver.link.call(RequestCode.QUERY_MESSAGE, query_fields(rocket.topic, key))
    return len(messages_in("broker-a", answer, rocket.topic))
