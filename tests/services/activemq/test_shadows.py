"""Properties with the names of STOMP's headers: two maps, from the wire to the replay."""

from pathlib import Path

import pytest
from proton import Message
from support.brokers.activemq.amqp import connected, received
from support.brokers.activemq.fixtures import Place, by_openwire, on_all, on_artemis, on_newest_classic
from support.brokers.activemq.sending import outgoing, published

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.activemq.stomp.codec import OF_STOMP
from dlq.connectors.base import Outgoing, Target

pytestmark = pytest.mark.activemq

PROPERTIES = {name: f"mine-{n}" for n, name in enumerate(sorted(OF_STOMP))} | {"tenant": "a"}
GIVEN = [f"{name}={text}" for name, text in PROPERTIES.items()]


@on_all
def test_a_property_takes_no_headers_place_and_comes_back(stomp: Place) -> None:
    here = by_openwire(stomp)
    stomp.java("ActiveMqShadows.java", "send", stomp.queue, *GIVEN)
    text, binary = records = here.drain()
    for record in records:
        told = {name: record.properties[f"property {name}"] for name in OF_STOMP}
        assert told == {name: PROPERTIES[name] for name in OF_STOMP}
        assert (record.headers["type"], record.headers["tenant"], record.priority) == ("order", "a", 8)
        assert (record.correlation_id, record.origin, record.persistent) == ("correlation", None, True)
        assert record.published_at is not None
        assert (record.message_id or "").startswith("ID:")
    assert (text.body, binary.body, binary.headers["content-length"]) == (b"text", b"\0\xff\n\0\7", "5")
    target = Target("queue", f"{stomp.queue}.back")
    assert here.connector.preview(Outgoing(0, text, target, {})).problem is None
    by_stomp = stomp.connector.preview(Outgoing(0, text, target, {})).problem
    assert "has the name of a header of STOMP" in (by_stomp or "")
    published(here, stomp.queue, outgoing(records, target))
    shown = stomp.java("ActiveMqShadows.java", "show", target.name)
    assert [each.pop("") for each in shown] == [
        "correlation queue://answers order 8 text",
        "correlation queue://answers order 8 bytes:5",
    ]
    assert [{n: t for n, t in one.items() if n != "__AMQ_CID"} for one in shown] == [PROPERTIES, PROPERTIES]


@on_newest_classic
@pytest.mark.parametrize("given", [GIVEN, ["content-length=1"], ["content-length=70000"], ["message-id=x"]])
def test_a_copy_by_stomp_and_a_drain_by_openwire_archive_it_once(
    stomp: Place, tmp_path: Path, given: list[str]
) -> None:
    stomp.java("ActiveMqShadows.java", "send", stomp.queue, *given)
    store = LocalStore(str(tmp_path / "archive"))
    copied = pull(store, stomp.connector, stomp.request().source, PullOptions("copy"))
    drained = pull(store, by_openwire(stomp).connector, stomp.request().source, PullOptions("drain"))
    assert (copied.captured, drained.captured, drained.recaptured, drained.acknowledged) == (2, 0, 2, 2)


@on_artemis
@pytest.mark.parametrize("given", [GIVEN, *([f"{name}=mine"] for name in ("content-length", "message-id"))])
def test_no_property_stops_a_drain_by_stomp_of_artemis(stomp: Place, given: list[str]) -> None:
    stomp.java("ActiveMqShadows.java", "send", stomp.queue, *given)
    text, binary = stomp.drain()
    assert (text.body, binary.body) == (b"text", b"\0\xff\n\0\7")
    for record in (text, binary):
        assert (record.headers["type"], record.priority, record.persistent) == ("order", 8, True)
        assert (record.correlation_id, record.headers["reply-to"]) == ("correlation", "queue://answers")
        assert record.published_at is not None
    assert stomp.drain() == []


@on_artemis
def test_what_a_stomp_client_wrote_stays_its_headers(stomp: Place) -> None:
    stomp.send(b"a", receipt="r", tenant="a")
    for here in (stomp, by_openwire(stomp)):
        [record] = here.pull("copy", force=True)[0]
        assert not [name for name in record.properties if name.startswith("property ")]
        assert here.connector.preview(Outgoing(0, record, Target("queue", "back"), {})).problem is None


@on_artemis
def test_application_properties_of_amqp_with_such_names_come_back(stomp: Place) -> None:
    """All but the one by which Wolverine tells of a failure, as on each broker."""
    here = by_openwire(stomp)
    stomp.send(b"what makes the queue")
    with connected(here) as connection:
        connection.create_sender(stomp.queue).send(Message(body="text", durable=True, properties=PROPERTIES))
    [record] = [one for one in here.drain() if one.headers.get("tenant") == "a"]
    target = Target("queue", f"{stomp.queue}.back")
    stomp.send(b"and the other one", queue=target.name)
    assert here.drain(target.name)
    published(here, stomp.queue, outgoing([record], target))
    [back] = received(here, target.name, 1)
    own = {name: text for name, text in (back.properties or {}).items() if not name.startswith("dlq_")}
    kept = {name: text for name, text in PROPERTIES.items() if name != "original-destination"}
    assert (own, back.body) == (kept, "text")
