"""A node that freezes, dies, or loses the end of a log: nothing is lost, doubled, or said to be sure."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.fixtures import KafkaPlace, connector_of
from support.brokers.kafka.letters import outgoing, sent
from support.sending_contract import new_plan, until_it_ends

from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.core import patience
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
    rest = [
        letter for letter in letters if found[letter.number] != "sent"
    ]  # it is known here that it has not
    assert set(sent(failing.connector, rest).values()) == {"confirmed"}
    stored = failing.driver.records(failing.topic)
    there = Counter(dict(message.headers() or ())["dlq_replay_id"] for message in stored)
    assert (len(there), set(there.values())) == (400, {1})


def test_a_log_that_lost_its_end_is_read_anew_and_proves_nothing_of_a_replay(
    failing: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, node, topic = failing.driver, failing.node, failing.dead
    driver.create_topic(topic)
    log = node.folder / "log" / f"{topic}-0" / f"{0:020}.log"
    for body in (b"0", b"1"):
        driver.send(topic, body)
    kept = log.stat().st_size
    for body in (b"2", b"3"):
        driver.send(topic, body)
    first, plan, since = failing.read(), new_plan(), now()
    before = failing.connector.bounds([Target("topic", topic)])
    node.kill()
    os.truncate(log, kept)
    node.start()
    driver.send(topic, b"new")
    seen = failing.read(first.checkpoint)
    assert [record.body for record in seen.records] == [b"0", b"1", b"new"]
    assert [record.record_id for record in seen.records[:2]] == [r.record_id for r in first.records[:2]]
    assert [gap[:3] for gap in seen.gaps] == [(f"{topic}-0", 4, None)]  # nobody knows what came after
    assert not seen.complete
    assert any("its end was cut off" in note for note in seen.notes)
    later = failing.read({**first.checkpoint, **seen.checkpoint})
    assert (later.records, later.gaps, later.complete) == ([], [], True)
    monkeypatch.setattr(patience, "SETTLED", 0.0)  # nothing is on its way
    found = failing.connector.find(Search(plan, [outgoing(0, topic, plan)], since, before))
    assert found.shown == {0: "unknown"}
    assert any("its end was cut off" in why for why in found.doubts)


def test_a_log_that_lost_its_end_and_has_grown_as_far_again_is_read_anew(failing: KafkaPlace) -> None:
    driver, node, topic = failing.driver, failing.node, failing.dead
    driver.create_topic(topic)
    driver.send(topic, b"0")
    log = node.folder / "log" / f"{topic}-0" / f"{0:020}.log"
    kept = log.stat().st_size
    for body in (b"1", b"2"):
        driver.send(topic, body)
    first = failing.read()
    node.kill()
    node.start()
    whole = failing.read(first.checkpoint)
    assert (whole.records, whole.gaps, whole.complete) == ([], [], True)  # another leader's epoch alone
    node.kill()
    os.truncate(log, kept)
    node.start()
    for body in (b"a", b"b", b"c"):
        driver.send(topic, body)
    reached = {**first.checkpoint, **whole.checkpoint}
    seen = failing.read(reached)
    assert [record.body for record in seen.records] == [b"0", b"a", b"b", b"c"]
    assert [gap[:3] for gap in seen.gaps] == [(f"{topic}-0", 3, None)]
    assert not seen.complete
    assert any("its end was cut off before that" in note for note in seen.notes)
    later = failing.read({**reached, **seen.checkpoint})
    assert (later.records, later.gaps, later.complete) == ([], [], True)


def test_a_log_that_lost_its_end_and_has_grown_as_far_again_proves_nothing_of_a_replay(
    failing: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SETTLED", 0.0)  # nothing is on its way
    driver, node, topic, target = failing.driver, failing.node, failing.topic, failing.topic
    driver.create_topic(topic)
    driver.send(topic, b"kept")
    log = node.folder / "log" / f"{topic}-0" / f"{0:020}.log"
    kept = log.stat().st_size
    for body in (b"1", b"2"):
        driver.send(topic, body)
    plan, since = new_plan(), now()
    before = failing.connector.bounds([Target("topic", target)])
    search = Search(plan, [outgoing(0, topic, plan)], since, before)
    assert failing.connector.find(search).shown == {0: "not_sent"}
    node.kill()
    os.truncate(log, kept)
    node.start()
    for body in (b"a", b"b", b"c", b"d"):
        driver.send(topic, body)
    found = failing.connector.find(search)
    assert found.shown == {0: "unknown"}
    assert any("was cut off at 1, before 3" in why for why in found.doubts)


def test_a_log_that_lost_just_what_followed_its_bound_proves_nothing_of_a_replay(
    failing: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is where it was before, and nothing is left of a letter that may have been consumed."""
    monkeypatch.setattr(patience, "SETTLED", 0.0)  # nothing is on its way
    driver, node, topic = failing.driver, failing.node, failing.topic
    driver.create_topic(topic)
    driver.send(topic, b"kept")
    log = node.folder / "log" / f"{topic}-0" / f"{0:020}.log"
    kept = log.stat().st_size
    plan, since = new_plan(), now()
    before = failing.connector.bounds([Target("topic", topic)])
    letter = outgoing(0, topic, plan)
    assert set(sent(failing.connector, [letter]).values()) == {"confirmed"}
    search = Search(plan, [letter], since, before)
    assert failing.connector.find(search).shown == {0: "sent"}
    node.kill()
    os.truncate(log, kept)
    node.start()
    found = failing.connector.find(search)
    assert found.shown == {0: "unknown"}
    assert any("began anew since" in why for why in found.doubts)


def test_bounds_of_another_cluster_of_the_same_name_prove_nothing_of_a_replay(
    kafka: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although a second apply has noted where the topic of this one ended."""
    monkeypatch.setattr(patience, "SETTLED", 0.0)  # nothing is on its way
    kafka.driver.create_topic(kafka.topic)
    plan, since = new_plan(), now()
    here = kafka.connector.bounds([Target("topic", kafka.topic)])
    there = {key.replace("@", "@another-"): number for key, number in here.items()}
    found = kafka.connector.find(Search(plan, [outgoing(0, kafka.topic, plan)], since, {**there, **here}))
    assert found.shown == {0: "unknown"}
    assert any("another cluster" in why for why in found.doubts)
