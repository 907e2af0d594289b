"""A node that freezes, dies, or loses the end of a log: nothing is lost, doubled, or said to be sure."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver, eventually
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.brokers.kafka.letters import is_in_doubt, outgoing, search_of, sent
from support.sending_contract import new_plan, until_it_ends
from support.waiting import PATIENCE

from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.core.clock import now
from dlq.core.errors import ConnectionLost

pytestmark = pytest.mark.kafka


@pytest.fixture
def failing(kafka: KafkaPlace) -> Iterator[KafkaPlace]:
    """A place whose node may be frozen and killed; it answers again when the test is over."""
    yield kafka
    kafka.node.revive()


def frozen(node: Kafka) -> None:
    os.kill(node.pid, signal.SIGSTOP)


def killed(node: Kafka) -> None:
    node.kill()


@pytest.mark.parametrize("stopped", [frozen, killed])
def test_a_node_that_stops_in_the_middle_of_a_send_loses_and_doubles_nothing(
    failing: KafkaPlace, stopped: Callable[[Kafka], None]
) -> None:
    failing.driver.create_topic(failing.topic)
    plan, since = new_plan(), now()
    before = failing.connector.bounds([Target("topic", failing.topic)])
    letters = [outgoing(number, failing.topic, plan) for number in range(400)]

    def given() -> Iterator[Outgoing]:
        yield from letters[:200]
        stopped(failing.node)
        yield from letters[200:]

    hasty = connector_of(failing.node, timeout="10s")
    publisher = hasty.publisher(SendRequest(plan, 50))
    answers, error = until_it_ends(publisher, given())
    hasty.close()
    failing.node.revive()
    assert isinstance(error, ConnectionLost)
    outcomes = Counter(answer.outcome for answer in answers)
    assert outcomes.keys() == {"confirmed", "in_doubt"}
    assert outcomes["in_doubt"] <= 50
    found = failing.connector.find(Search(plan, letters, since, before)).shown
    absent = {"not_sent", "unknown"} if stopped is frozen else {"unknown"}  # it may have lost its end
    assert set(found.values()) <= {"sent", *absent}
    assert {found[answer.number] for answer in answers if answer.outcome == "confirmed"} == {"sent"}
    rest = [letter for letter in letters if found[letter.number] != "sent"]  # known here
    assert set(sent(failing.connector, rest).values()) == {"confirmed"}
    stored = failing.driver.records(failing.topic)
    there = Counter(dict(message.headers() or ())["dlq_replay_id"] for message in stored)
    assert (len(there), set(there.values())) == (400, {1})


def log_of(place: KafkaPlace, topic: str) -> Path:
    """Where its records lie."""
    return place.node.folder / "log" / f"{topic}-0" / f"{0:020}.log"


def lose(place: KafkaPlace, topic: str, kept: int, *new: bytes) -> None:
    """The node dies, and so many bytes of a log are left; then records come."""
    place.node.kill()
    os.truncate(log_of(place, topic), kept)
    place.node.start()
    for body in new:
        place.driver.send(topic, body)


def filled(place: KafkaPlace, topic: str, kept: int, *bodies: bytes) -> int:
    """A topic with these records; returns how long the first `kept` of them are."""
    place.driver.create_topic(topic)
    for body in bodies[:kept]:
        place.driver.send(topic, body)
    size = log_of(place, topic).stat().st_size
    for body in bodies[kept:]:
        place.driver.send(topic, body)
    return size


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_log_that_lost_its_end_is_read_anew_and_proves_nothing_of_a_replay(failing: KafkaPlace) -> None:
    topic = failing.dead
    kept = filled(failing, topic, 2, b"0", b"1", b"2", b"3")
    first, search = failing.read(), search_of(failing, topic)
    lose(failing, topic, kept, b"new")
    seen = failing.read(first.checkpoint)
    assert [record.body for record in seen.records] == [b"0", b"1", b"new"]
    assert [record.record_id for record in seen.records[:2]] == [r.record_id for r in first.records[:2]]
    assert [gap[:3] for gap in seen.gaps] == [(f"{topic}-0", 4, None)]  # nobody knows what came after
    assert not seen.complete
    assert any("its end was cut off" in note for note in seen.notes)
    later = failing.read({**first.checkpoint, **seen.checkpoint})
    assert (later.records, later.gaps, later.complete) == ([], [], True)
    assert is_in_doubt(failing, search, "its end was cut off")


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_log_that_lost_its_end_and_has_grown_as_far_again_is_read_anew_and_proves_nothing(
    failing: KafkaPlace,
) -> None:
    topic = failing.dead
    kept = filled(failing, topic, 1, b"0", b"1", b"2")
    first = failing.read()
    failing.node.kill()
    failing.node.start()
    whole = failing.read(first.checkpoint)
    assert (whole.records, whole.gaps, whole.complete) == ([], [], True)  # another leader's epoch alone
    search = search_of(failing, topic)
    assert failing.connector.find(search).shown == {0: "not_sent"}
    lose(failing, topic, kept, b"a", b"b", b"c", b"d")
    reached = {**first.checkpoint, **whole.checkpoint}
    seen = failing.read(reached)
    assert [record.body for record in seen.records] == [b"0", b"a", b"b", b"c", b"d"]
    assert [gap[:3] for gap in seen.gaps] == [(f"{topic}-0", 3, None)]
    assert not seen.complete
    assert any("its end was cut off before that" in note for note in seen.notes)
    later = failing.read({**reached, **seen.checkpoint})
    assert (later.records, later.gaps, later.complete) == ([], [], True)
    assert is_in_doubt(failing, search, "was cut off at 1, before 3")


@pytest.mark.usefixtures("nothing_on_its_way")
def test_a_log_that_lost_just_what_followed_its_bound_proves_nothing_of_a_replay(failing: KafkaPlace) -> None:
    """Its end is where it was before, and nothing is left of a letter that may have been consumed."""
    kept = filled(failing, failing.topic, 1, b"kept")
    search = search_of(failing, failing.topic)
    assert set(sent(failing.connector, [*search.letters]).values()) == {"confirmed"}
    assert failing.connector.find(search).shown == {0: "sent"}
    lose(failing, failing.topic, kept)
    assert is_in_doubt(failing, search, "began anew since")


@pytest.mark.usefixtures("nothing_on_its_way")
def test_what_a_leader_holds_and_its_followers_lack_is_in_doubt_until_they_have_it() -> None:
    with (
        Kafka() as leader,
        Kafka(beside=leader) as follower,
        closing(connector_of(leader, timeout="2s")) as hasty,
    ):
        place = KafkaPlace(leader, Driver(leader.bootstrap), hasty)
        told = NewTopic(place.topic, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        place.driver.admin.create_topics([told])[place.topic].result(PATIENCE)
        eventually(lambda: place.driver.end(place.topic) >= 0)
        search = search_of(place, place.topic)

        def given() -> Iterator[Outgoing]:
            yield outgoing(1, place.topic, search.plan)
            eventually(lambda: place.driver.end(place.topic) == 1)
            follower.kill()
            yield from search.letters

        answers, _ = until_it_ends(hasty.publisher(SendRequest(search.plan, 2)), given())
        assert {answer.number: answer.outcome for answer in answers} == {1: "confirmed", 0: "in_doubt"}
        eventually(lambda: len(place.driver.admin.list_topics(timeout=PATIENCE).brokers) == 1)
        with closing(connector_of(leader)) as later:  # it knows of no other that it would wait for
            assert is_in_doubt(
                replace(place, connector=later), search, "ends at 2 on its leader, and what lies"
            )
            follower.start()
            eventually(lambda: place.driver.end(place.topic) == 2)
            assert later.find(search).shown == {0: "sent"}


@pytest.mark.usefixtures("nothing_on_its_way")
def test_bounds_of_another_cluster_of_the_same_name_prove_nothing_of_a_replay(kafka: KafkaPlace) -> None:
    """Although a second apply has noted where the topic of this one ended."""
    kafka.driver.create_topic(kafka.topic)
    search = search_of(kafka, kafka.topic)
    there = {key.replace("@", "@another-"): number for key, number in search.before.items()}
    assert is_in_doubt(kafka, search._replace(before={**there, **search.before}), "another cluster")
