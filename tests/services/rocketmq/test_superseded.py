"""A plan on a real RocketMQ leaves out what a newer message of its key has replaced, and only that."""

import pytest
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import eventually

from dlq.connectors.newer import Bound, NewerProof, NewerSearch, Sought
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.prove.start_offsets import runtime_of
from dlq.connectors.rocketmq.read.outcomes import messages_in, query_fields
from dlq.core.keys import key_reader
from dlq.core.record import Record

pytestmark = pytest.mark.rocketmq


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
        eventually(lambda: rocket.driver.end(rocket.topic) == 2 and is_dispatched(rocket))
    finally:
        rocket.driver.set("messageIndexEnable", "true")
    assert "lacks the newest message" in ask(rocket, [record]).unlooked[0]


def is_dispatched(rocket: Rocket) -> bool:
    """Whether the broker's queues and its index have all that they are to have."""
    told = runtime_of(rocket.connector.cluster, "broker-a")
    return told is not None and told.dispatched == told.log_end


def indexed_under(rocket: Rocket, key: str) -> int:
    """How many messages the broker's index has under a key."""
    answer = rocket.driver.link.call(RequestCode.QUERY_MESSAGE, query_fields(rocket.topic, key))
    return len(messages_in("broker-a", answer, rocket.topic))
