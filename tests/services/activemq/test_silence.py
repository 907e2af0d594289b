"""A queue that has letters and gives none says why; and a drain may take other brokers' letters."""

import re

import pytest
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, broker_of
from support.brokers.activemq.fixtures import (
    WAYS,
    Place,
    by_openwire,
    on_artemis,
    on_newest,
    on_newest_classic,
    settings_of,
)
from support.brokers.activemq.sending import place_on
from support.waiting import eventually

from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.core.errors import Unreachable
from dlq.core.runtime import patience

pytestmark = pytest.mark.activemq


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "STALLED", 1.0)


@on_newest_classic
def test_a_queue_that_is_paused_says_so(stomp: Place) -> None:
    stomp.send(b"a", b"b")
    stomp.execute("pause")
    for place in (stomp, by_openwire(stomp)):
        records, _, reading = place.pull("drain")
        assert (records, reading.complete) == ([], False)
        assert f"{stomp.queue} has 2 letter(s) and gives none: it is paused" in reading.notes
        warnings = place.connector.inspect(place.request().source).warnings
        assert f"{stomp.queue} gives nothing: it is paused." in warnings
    stomp.execute("resume")
    assert len(stomp.drain()) == 2


@on_newest
@pytest.mark.parametrize("exclusive", ["true", "false"])
def test_letters_in_flight_at_another_consumer_are_said_to_be_there(stomp: Place, exclusive: str) -> None:
    stomp.send(b"a", b"b", b"c")
    other = stomp.consumer(**{"activemq.exclusive": exclusive})
    held: list[object] = []
    eventually(lambda: held.extend(other.receive(0.1)) or len(held) == 3)
    records, _, reading = stomp.pull("drain")
    said = f"{stomp.queue} has 3 letter(s) and gives none: 3 are in flight at other consumers, unacknowledged"
    is_shared = stomp.broker.artemis or exclusive == "false"
    more = "" if is_shared else "; an exclusive consumer gets all of them"
    assert (records, said + more in reading.notes) == ([], True)
    other.close()


@on_artemis
@pytest.mark.parametrize("way", WAYS)
def test_a_core_message_that_stomp_fails_to_show_is_named_and_at_no_other_consumer(
    stomp: Place, way: str
) -> None:
    stomp.make_queue()
    stomp.java("ArtemisCore.java", stomp.queue)
    stomp.send(b"behind it")
    records, _, reading = WAYS[way](stomp).pull("drain")
    assert ([one.body for one in records], reading.complete, stomp.depth(stomp.queue)) == (
        [b"behind it"], False, 1,
    )  # fmt: skip
    said = re.escape(
        f"{stomp.queue} has 1 letter(s) and gives none: 1 came to this reading, and Artemis' STOMP"
    )
    assert re.search(rf"{said} failed .*; unacknowledged: \d+ \(plain\)", str(reading.notes))


@pytest.mark.parametrize("version", CLASSIC[-1:])
def test_a_broker_without_queues_is_believed_and_the_agent_of_another_is_not(version: str) -> None:
    with broker_of(version) as fresh:
        assert Jolokia(settings_of(fresh), artemis=False).queues() == {}
        with pytest.raises(Unreachable, match="shows no queue, and no broker that has none"):
            Jolokia(settings_of(fresh), artemis=True).queues()


@pytest.mark.parametrize("version", [CLASSIC[-1], ARTEMIS])
def test_letters_that_a_prepared_transaction_holds_are_said_to_be_there(version: str) -> None:
    with broker_of(version) as broker:
        place = place_on(broker)
        place.send(b"so that the queue is there")
        assert "prepared" not in str([place.pull("drain")[2].notes for _ in range(2)])
        place.java("ActiveMqPrepare.java", place.queue, "a", "b")
        broker.kill()
        broker.start()
        again = place_on(broker)
        assert "1 prepared XA transaction(s)" in str(again.connector.inspect(place.request().source).warnings)
        records, _, reading = again.pull("drain")
        assert (records, "1 prepared XA transaction(s)" in str(reading.notes)) == ([], True)
