"""A letter that crossed a network bridge died where it was consumed, and says so."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from services.activemq.test_causes import refuse
from support.brokers.activemq.broker import CLASSIC, broker_of
from support.brokers.activemq.fixtures import WAYS, Place
from support.brokers.activemq.sending import outgoing, place_on, published, run_of
from support.waiting import eventually

from dlq.connectors.activemq.jolokia import Jolokia
from dlq.connectors.base import Search, Target
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq


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
        (b"a", "orders", None),
        (b"b", "orders", None),
    ]
    assert [r.record_id for r in looked] == [r.record_id for r in letters]
    assert {r.headers["tenant"] for r in letters} == {"42"}
    assert {r.broker_node for r in letters} == {f"127.0.0.1:{far.broker.stomp}"}
    assert all(r.properties["broker path"].startswith("ID:") for r in letters), "the broker it came from"

    target = far.connector.target_of(letters[0], "origin")
    assert target == Target("queue", "orders")
    assert {s.outcome for s in published(far, "plan", outgoing(letters, target))} == {"confirmed"}
    assert [r.body for r in far.drain("orders")] == [b"a", b"b"]
    assert Jolokia(near.settings, artemis=False).queues()["orders"].depth == 0


@pytest.mark.parametrize("way", WAYS)
def test_markers_that_crossed_a_bridge_prove_nothing_of_what_they_may_have_left_behind(
    bridged: tuple[Place, Place], way: str
) -> None:
    near, far = map(WAYS[way], bridged)
    near.send(*[b"%d" % n for n in range(20)])
    letters = outgoing(near.drain(), Target("queue", "orders.back"))
    _, before = run_of(near, "plan", letters[:10])
    far.send(b"so that the queue is there", queue="dlq.replay.plan")
    crossing = far.link()
    name = {"destination": "/queue/dlq.replay.plan", "id": crossing.token, "ack": "client-individual"}
    crossing.request("SUBSCRIBE", name)
    frames: list[object] = []
    eventually(lambda: len(frames.extend(crossing.receive(0.1)) or frames) >= 4)
    crossing.close()
    eventually(lambda: far.connector.gauge(Source("m", "legacy", queue="dlq.replay.plan")).depth == 4)
    assert set(far.connector.find(Search("plan", letters, 0, before)).shown.values()) == {"unknown"}
