"""Brokers that pass letters on to others: a cluster, a mirror, a bridge."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from services.activemq.test_causes import refuse
from support.brokers.activemq.broker import CLASSIC, Artemis, broker_of
from support.brokers.activemq.fixtures import WAYS, Place
from support.brokers.activemq.sending import outgoing, place_on, run_of, sent_back
from support.sending_contract import proven
from support.waiting import eventually

from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.connectors.base import Search, Target
from dlq.core.errors import ConfigError
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq
TARGET = Target("queue", "orders")


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Place, Place]]:
    with Artemis(cluster=()) as first, Artemis(cluster=(first,)) as second:
        here, there = place_on(first), place_on(second)
        eventually(lambda: here.connector.queues.bridges() and there.connector.queues.bridges())
        for place in (here, there):
            place.make_queue(TARGET.name)
        yield here, there


def test_what_goes_to_a_consumer_of_another_node_is_confirmed_and_found(nodes: tuple[Place, Place]) -> None:
    here, there = nodes
    consumer = there.consumer(TARGET.name)
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
    search = Search("plan", letters, 0, {**before, **anchor})
    assert proven(lambda: here.connector.find(search)) == {
        n: "sent" if n < 30 else "not_sent" for n in range(40)
    }


def test_a_drain_says_that_it_draws_letters_of_the_other_nodes(nodes: tuple[Place, Place]) -> None:
    here, _ = nodes
    reading = here.connector.read(here.request("drain", TARGET.name))
    reading.close()
    said = [*reading.notes, *here.connector.inspect(Source("s", "legacy", queue=TARGET.name)).warnings]
    assert sum(note.startswith("this broker is a node of a cluster (1 others)") for note in said) == 2


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Place, Place]]:
    """A broker, and the mirror to which it carries all that it gets."""
    with Artemis() as mirror, Artemis(mirror=mirror) as broker:
        yield place_on(broker), place_on(mirror)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_mirror_does_not_show_may_have_been_sent(pair: tuple[Place, Place], way: str) -> None:
    broker, mirror = map(WAYS[way], pair)
    broker.send(*[b"%d" % n for n in range(20)], queue=way)
    letters = outgoing(broker.drain(way), Target("queue", f"{way}.back"))
    before = broker.connector.bounds([letters[0].target])
    search = Search(way, letters, 0, {**run_of(broker, way, letters[:10])[1], **before})
    assert proven(lambda: broker.connector.find(search)) == {
        n: "sent" if n < 10 else "not_sent" for n in range(20)
    }
    markers = f"dlq.replay.{way}"
    eventually(lambda: mirror.depth(markers) == broker.depth(markers) > 0)
    proof = mirror.connector.find(search)
    assert "not_sent" not in proof.shown.values()
    assert any("letters were sent to" in why for why in proof.doubts)


def test_an_address_of_the_mirror_s_is_refused_beside_one_of_the_broker_s(pair: tuple[Place, Place]) -> None:
    broker, mirror = pair
    mixed = mirror.by(openwire_url=f"tcp://127.0.0.1:{broker.broker.openwire}")
    with pytest.raises(ConfigError, match="is another broker than"):
        run_of(mixed, "mixed", [])


@pytest.fixture
def bridged() -> Iterator[tuple[Place, Place]]:
    """Two brokers; the first forwards what consumers of the second want."""
    with broker_of(CLASSIC[0]) as far, broker_of(CLASSIC[0], f"bridge={far.openwire}") as near:
        yield tuple(replace(place_on(one).by(jolokia_details=True), queue="orders") for one in (near, far))


def test_a_letter_that_crossed_a_bridge_names_its_origin_and_goes_back_to_where_it_died(
    bridged: tuple[Place, Place],
) -> None:
    near, far = bridged
    near.send(b"a", b"b", tenant="42")
    refuse(far, "orders", times=2)
    looked = far.pull("copy", "ActiveMQ.DLQ")[0]
    letters = far.drain("ActiveMQ.DLQ")
    assert [(r.body, r.origin, r.failure_text) for r in letters] == [
        (b, "orders", None) for b in (b"a", b"b")
    ]
    assert [r.record_id for r in looked] == [r.record_id for r in letters]
    assert {r.headers["tenant"] for r in letters} == {"42"}
    assert {r.broker_node for r in letters} == {f"127.0.0.1:{far.broker.stomp}"}
    assert all(r.properties["broker path"].startswith("ID:") for r in letters), "the broker it came from"
    target = far.connector.target_of(letters[0], "origin")
    assert target == Target("queue", "orders")
    sent_back(far, letters, target)
    assert [r.body for r in far.drain("orders")] == [b"a", b"b"]
    eventually(lambda: Jolokia(near.settings, artemis=False).queues()["orders"].depth == 0)


@pytest.mark.parametrize("way", ["openwire"])
def test_markers_that_crossed_a_bridge_prove_nothing_of_what_they_may_have_left_behind(
    bridged: tuple[Place, Place], way: str
) -> None:
    near, far = map(WAYS[way], bridged)
    near.send(*[b"%d" % n for n in range(20)])
    letters = outgoing(near.drain(), Target("queue", "orders.back"))
    _, before = run_of(near, "plan", letters[:10])
    far.send(b"so that the queue is there", queue="dlq.replay.plan")
    crossing = far.consumer("dlq.replay.plan")
    frames: list[object] = []
    eventually(lambda: len(frames.extend(crossing.receive(0.1)) or frames) >= 4)
    crossing.close()
    eventually(lambda: far.connector.gauge(Source("m", "legacy", queue="dlq.replay.plan")).depth == 4)
    assert set(far.connector.find(Search("plan", letters, 0, before)).shown.values()) == {"unknown"}


def test_a_drain_of_a_broker_with_bridges_is_said_to_take_the_others_letters(
    bridged: tuple[Place, Place],
) -> None:
    for place, name in zip(bridged, ("NC", "NC_test_outbound"), strict=True):
        place.send(b"a")
        said = f"has bridges to others ({name})"
        eventually(
            lambda said=said, here=place: said in str(here.connector.inspect(here.request().source).warnings)
        )
        _, _, reading = place.pull("drain")
        assert any("has bridges to others" in note for note in reading.notes)
