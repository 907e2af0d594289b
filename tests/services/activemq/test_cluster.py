"""Two nodes of an Artemis cluster: what is sent to one goes to where its consumers are."""

from collections.abc import Iterator

import pytest
from support.brokers.activemq.broker import Artemis
from support.brokers.activemq.fixtures import Place
from support.brokers.activemq.sending import outgoing, place_on, run_of
from support.waiting import eventually

from dlq.connectors.base import Search, Target
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq
TARGET = Target("queue", "orders")


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Place, Place]]:
    with Artemis(cluster=()) as first, Artemis(cluster=(first,)) as second:
        here, there = place_on(first), place_on(second)
        eventually(lambda: here.connector._queues.bridges() and there.connector._queues.bridges())
        for place in (here, there):
            place.make_queue(TARGET.name)
        yield here, there


def test_what_goes_to_a_consumer_of_another_node_is_confirmed_and_found(nodes: tuple[Place, Place]) -> None:
    here, there = nodes
    consumer = there.link()
    how = {"ack": "client-individual", "subscription-type": "ANYCAST", "consumer-window-size": "-1"}
    consumer.request("SUBSCRIBE", {"destination": TARGET.name, "id": consumer.token, **how})
    got: list[object] = []

    def demand_is_known() -> bool:
        here.send(b"where do you go?", queue=TARGET.name)
        got.extend(consumer.receive(0.5))
        return bool(got)

    eventually(demand_is_known)
    here.send(*[b"%d" % n for n in range(40)], queue="dead")
    letters = outgoing(here.drain("dead"), TARGET)
    before = here.connector.bounds([TARGET])
    answers, anchor = run_of(here, "plan", letters[:30])
    assert {answer.outcome for answer in answers} == {"confirmed"}
    got.clear()
    eventually(lambda: len(got.extend(consumer.receive(0.1)) or got) >= 30)
    consumer.close()
    found = here.connector.find(Search("plan", letters, 0, {**before, **anchor})).shown
    assert found == {n: "sent" if n < 30 else "not_sent" for n in range(40)}


def test_a_drain_says_that_it_draws_letters_of_the_other_nodes(nodes: tuple[Place, Place]) -> None:
    here, _ = nodes
    reading = here.connector.read(here.request("drain", TARGET.name))
    reading.close()
    said = [*reading.notes, *here.connector.inspect(Source("s", "legacy", queue=TARGET.name)).warnings]
    assert [note.startswith("this broker is a node of a cluster (1 others)") for note in said].count(
        True
    ) == 2
