"""Another Artemis that answers in the place of the one that letters were sent to, and holds a copy of it."""

from collections.abc import Iterator

import pytest
from support.brokers.activemq.broker import Artemis
from support.brokers.activemq.fixtures import WAYS, Place
from support.brokers.activemq.sending import outgoing, place_on, run_of
from support.waiting import eventually

from dlq.connectors.base import Search, Target
from dlq.core.errors import ConfigError
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq


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
    assert broker.connector.find(search).shown == {n: "sent" if n < 10 else "not_sent" for n in range(20)}
    markers = Source("m", "legacy", queue=f"dlq.replay.{way}")
    eventually(lambda: mirror.connector.gauge(markers).depth == broker.connector.gauge(markers).depth)
    proof = mirror.connector.find(search)
    assert "not_sent" not in proof.shown.values()
    assert any("letters were sent to" in why for why in proof.doubts)


def test_an_address_of_the_mirror_s_is_refused_beside_one_of_the_broker_s(pair: tuple[Place, Place]) -> None:
    broker, mirror = pair
    mixed = mirror.by(openwire_url=f"tcp://127.0.0.1:{broker.broker.openwire}")
    with pytest.raises(ConfigError, match="is another broker than"):
        run_of(mixed, "mixed", [])
