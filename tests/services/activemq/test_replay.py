"""The way back into ActiveMQ: everything sent is accounted for."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest
from proton import Message
from proton.utils import BlockingConnection
from support.brokers.activemq.broker import CLASSIC, ActiveMq
from support.brokers.activemq.fixtures import WAYS, Place, by_openwire, on_all, on_artemis, on_classic
from support.brokers.activemq.sending import outgoing, place_on, published, sent_back
from support.waiting import PATIENCE, eventually

from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.activemq.records.bodies import readable
from dlq.connectors.activemq.stomp.codec import encode, headers_of
from dlq.connectors.base import Outgoing, SendRequest, Target
from dlq.core.errors import AccessDenied

pytestmark = pytest.mark.activemq


@on_all
def test_letters_go_back_once_without_what_would_shadow_the_next_death(stomp: Place) -> None:
    own = {"original-destination": "/queue/x", "dlqDeliveryFailureCause": "old", "_AMQ_ORIG_ADDRESS": "x"}
    stomp.send(*[b"\0%d" % n for n in range(250)], tenant="a:b\nc", priority="7", **own)
    letters = sent_back(stomp, stomp.drain(), stomp.back)
    back = stomp.drain(stomp.back.name)
    assert [r.body for r in back] == [letter.record.body for letter in letters]
    assert [r.headers["dlq_replay_id"] for r in back] == [o.provenance["dlq_replay_id"] for o in letters]
    assert (back[0].headers["tenant"], back[0].priority, back[0].persistent) == ("a:b\nc", 7, True)
    assert not set(own) & set(back[0].headers)


@on_classic
def test_texts_stay_texts_bytes_stay_bytes_and_groups_stay_groups(stomp: Place) -> None:
    send = {**stomp.destination(), "persistent": "true", "JMSXGroupID": "g"}
    stomp = stomp.by(jolokia_details=True)
    stomp.send_frames([encode("SEND", send)[:-1] + "wört".encode() + b"\0", encode("SEND", send, b"bytes")])
    sent_back(stomp, stomp.drain(), stomp.back)
    jolokia = Jolokia(stomp.settings, artemis=False)
    shown = [
        jolokia.message(stomp.back.name, r.message_id or "") or {}
        for r in stomp.pull("copy", stomp.back.name)[0]
    ]
    assert [("Text" in each, "BodyLength" in each) for each in shown] == [(True, False), (False, True)]
    assert shown[0]["Text"] == "wört"
    assert [each["JMSXGroupID"] for each in shown] == ["g", "g"]


@on_classic
def test_a_letter_of_an_amqp_producer_that_expired_reaches_an_amqp_consumer(stomp: Place) -> None:
    origin, accepted = f"ttl.{stomp.queue}", "1"
    stomp.send(b"so that the queue is there", queue="ActiveMQ.DLQ")
    stomp.java("ActiveMqAmqp.java", origin, "late", ttl=100)
    letters = eventually(lambda: [r for r in stomp.drain("ActiveMQ.DLQ") if r.origin == origin])
    published(stomp, stomp.queue, outgoing(letters, Target("queue", origin)))
    stomp.java("ActiveMqReject.java", origin, accepted)
    assert stomp.drain(origin) == []
    assert [r for r in stomp.pull("copy", "ActiveMQ.DLQ")[0] if r.origin == origin] == []


@on_artemis
def test_artemis_takes_a_replay_id_only_once(stomp: Place) -> None:
    stomp.send(b"a", b"b", b"c")
    letters = outgoing(stomp.drain(), stomp.back)
    assert [s.outcome for s in published(stomp, stomp.queue, letters[:2])] == ["confirmed"] * 2
    assert [s.outcome for s in published(stomp, stomp.queue, letters)] == ["confirmed"] * 3
    assert sorted(r.body for r in stomp.drain(stomp.back.name)) == [b"a", b"b", b"c"]


def test_without_the_right_to_write_markers_nothing_is_sent_and_the_right_is_named() -> None:
    with ActiveMq(CLASSIC[-1], "users", "rights") as broker:
        place = replace(place_on(broker), queue="letters.q")
        place.send(b"a")
        for way in (place, by_openwire(place)):
            with pytest.raises(AccessDenied, match=r'needs <authorizationEntry queue="dlq\.replay\.>" read='):
                way.connector.publisher(SendRequest("plan", 1000))
        assert len(place.drain()) == 1


def test_a_broker_that_allows_one_connection_gets_everything_over_it() -> None:
    broker = ActiveMq(CLASSIC[-1])
    broker.options += (f"one={broker.tls}",)
    with broker:
        place = place_on(broker)
        place.send(*[b"%d" % n for n in range(250)])
        letters = outgoing(place.drain(), Target("queue", "back"))
        one = ActiveMQConnector(replace(place.settings, url=f"stomp://127.0.0.1:{broker.tls}"))
        publisher = one.publisher(SendRequest("plan", 1000))
        assert {sent.outcome for sent in publisher.publish(iter(letters))} == {"confirmed"}
        publisher.close()
        assert [r.body for r in place.drain("back")] == [letter.record.body for letter in letters]


@on_classic
def test_a_letter_whose_queue_the_broker_did_not_keep_goes_to_no_topic_unless_it_is_named(
    stomp: Place,
) -> None:
    topic = f"Nameless.{stomp.queue}"
    queues = [f"Of.{one}.{topic}" for one in "ab"]
    link = stomp.link()
    for queue in queues:
        subscription = {"destination": f"/queue/{queue}", "id": f"{link.token}-{queue}"}
        link.request("SUBSCRIBE", {**subscription, "ack": "client-individual"})
    link.request("SEND", {"destination": f"/topic/{topic}", "persistent": "true"}, b"a")
    link.ping()
    link.request("NACK", {"id": headers_of(link.receive(PATIENCE)[0].head)["ack"]})
    link.close()
    [record] = [r for r in stomp.drain("ActiveMQ.DLQ") if r.origin == topic]
    target = stomp.connector.target_of(record, "origin")
    assert target == Target("topic", topic)
    preview = stomp.connector.preview(Outgoing(0, record, target, {}))
    assert "each queue of a virtual topic" in preview.unless_named["target"]


@on_classic
def test_a_letter_that_was_moved_out_of_a_dead_letter_queue_does_not_go_back_there(stomp: Place) -> None:
    own, parked = f"ActiveMQ.DLQ.{stomp.queue}", f"parked.{stomp.queue}"
    stomp.send(b"a", queue=own)
    move = "moveMatchingMessagesTo(java.lang.String,java.lang.String)"
    stomp.execute(move, "", parked, queue=own)
    [record] = stomp.drain(parked)
    assert record.origin == own
    target = stomp.connector.target_of(record, "origin")
    assert target is not None
    preview = stomp.connector.preview(Outgoing(0, record, target, {}))
    assert "out of which it was moved: where it failed is not known" in preview.unless_named["target"]


@pytest.fixture(scope="module")
def narrow() -> Iterator[ActiveMq]:
    """A broker that takes no frame above 100,000 bytes."""
    with ActiveMq(CLASSIC[-1], "frame=100000") as broker:
        yield broker


@pytest.mark.parametrize(("way", "large", "told"), [
    ("stomp", 0, "frame size"),
    ("stomp", 120, "frame size"),
    ("openwire", 199, "takes none above 100000 (wireFormat.maxFrameSize)"),
])  # fmt: skip
def test_a_letter_that_is_too_large_for_the_broker_is_refused_and_the_rest_goes(
    narrow: ActiveMq, way: str, large: int, told: str
) -> None:
    place = WAYS[way](replace(place_on(narrow), queue=f"narrow.{way}.{large}"))
    place.send(*[b"%d" % n for n in range(200)])
    letters = outgoing(place.drain(), place.back)
    grown = letters[large].record._replace(body=bytes(150_000), body_size=150_000)
    letters[large] = letters[large]._replace(record=grown)
    said = {sent.number: sent for sent in published(place, place.queue, letters)}
    assert {n for n in range(200) if said[n].outcome != "confirmed"} == {large}
    assert (said[large].outcome, told in (said[large].detail or "")) == ("refused", True)
    assert len(place.drain(place.back.name)) == 199


@on_classic
@pytest.mark.parametrize("way", WAYS)
def test_a_letter_of_an_amqp_producer_shows_its_message_and_goes_back_byte_for_byte(
    stomp: Place, way: str
) -> None:
    place = WAYS[way](stomp)
    sent = Message(
        body=b'{"order": {"id": 5}}', inferred=True, durable=True, content_type="application/json",
        content_encoding="identity", id=UUID(int=7), properties={"id": UUID(int=9)},
    )  # fmt: skip
    map_of_it = Message(body={"k": [1, 2]}, durable=True)
    with closing(BlockingConnection(f"amqp://127.0.0.1:{stomp.broker.amqp}", timeout=PATIENCE)) as connection:
        sender = connection.create_sender(place.queue)
        for message in (sent, map_of_it):
            sender.send(message)
        source = replace(place.request().source, key="json:$.order.id")
        first, second = records = place.drain(source=source)
        assert (first.body, first.body_size, first.key) == (sent.body, 20, "5")
        assert (first.content_type, first.content_encoding) == ("application/json", "identity")
        assert (readable(second.body, second.properties) or (0,))[0] == {"k": [1, 2]}
        sent_back(place, records, place.back)
        receiver = connection.create_receiver(place.back.name)
        back = [receiver.receive(timeout=PATIENCE) for _ in records]
    assert (bytes(back[0].body), back[0].id, back[0].properties["id"]) == (sent.body, sent.id, UUID(int=9))
    assert back[1].body == map_of_it.body
