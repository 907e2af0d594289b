"""What came to Artemis by AMQP 1.0 is read by it, as it is, and goes back by it, as it was."""

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Message,
    Timeout,
    char,
    decimal64,
    symbol,
    timestamp,
    ubyte,
    ulong,
)
from support.brokers.activemq.amqp import connected, died, encoded, received
from support.brokers.activemq.fixtures import Place, by_openwire, on_artemis
from support.brokers.activemq.sending import outgoing, published, sent_back
from support.waiting import PATIENCE, eventually

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ARTEMIS
from dlq.connectors.amqp10.codec import message
from dlq.connectors.base import Outgoing, Target
from dlq.core.errors import NotFound
from dlq.core.record import Record

pytestmark = [pytest.mark.activemq, on_artemis]
SEVEN = uuid.UUID(int=7)
BODIES: list[dict[str, Any]] = [
    {"body": b'{"order": {"id": 5}}', "inferred": True, "content_type": "application/json"},
    {"body": "wört"}, {"body": 42}, {"body": None}, {"body": b"\xff\0", "inferred": False},
    {"body": {"list": [1, SEVEN]}}, {"body": [1, "a", {"k": 5}]}, {"body": [1, 2], "inferred": True},
    {"body": Array(UNDESCRIBED, Data.INT, 1, 2)}, {"body": SEVEN},
]  # fmt: skip
VALUES = [
    "text", 5, ulong(2**63), 0.5, True, None, b"\xff", float("nan"), decimal64(5), SEVEN, char("c"),
    timestamp(1_700_000_000_000), symbol("s"), ubyte(7), "null",
]  # fmt: skip
IDS = ["text", ulong(7), SEVEN, b"\xff\0"]


def of_each_kind() -> list[Message]:
    """Every body, every type of a property, and every type of an id that AMQP 1.0 has."""
    made = [Message(durable=True, **each) for each in BODIES]
    made += [Message(body=b"x", inferred=True, durable=True, properties={"value": each}) for each in VALUES]
    made += [Message(body=b"x", inferred=True, durable=True, id=i, correlation_id=i) for i in IDS]
    full = {
        "user_id": b"someone", "subject": "s", "reply_to": "answers", "content_type": "text/plain",
        "content_encoding": "gzip", "group_id": "g", "group_sequence": 3, "reply_to_group_id": "r",
        "creation_time": 1_700_000_000.0, "priority": 7,
        "properties": {"cloudEvents:id": "1", "cloudEvents:specversion": "1.0"},
        "annotations": {symbol("x-opt-mine"): SEVEN},
    }  # fmt: skip
    made.append(Message(body=bytes(range(256)) * 1200, inferred=True, durable=True))  # a large message
    return [Message(body="full", durable=True, **full), *made]  # in the order of their priorities


@pytest.fixture
def place(stomp: Place) -> Iterator[Place]:
    """A queue of this test's own, at an address of its name."""
    stomp.make_queue()
    one = by_openwire(stomp)
    yield one
    one.connector.close()


def of(place: Place, records: list[Record]) -> list[Record]:
    """Those that died in this test's own queue."""
    return [record for record in records if record.headers.get("_AMQ_ORIG_QUEUE") == place.queue]


def bare(whole: bytes) -> bytes:
    """The bare message, which begins with the properties."""
    kept = [s for s in message.sections(whole) if s.code >= message.PROPERTIES]
    return b"".join(whole[section.start : section.end] for section in kept)


def without_to(whole: bytes) -> bytes:
    """The bare message without its marks and the place that Artemis writes into it when a letter dies."""
    block, body, _ = message.split(whole)
    sent = message.to_send(block, lambda name: name.startswith("dlq_replay"), {}, {}, {"to": b"\x40"})
    return bare(message.join_message(sent, body))


def test_each_kind_of_message_is_archived_once_and_goes_back_byte_for_byte(place: Place) -> None:
    messages = of_each_kind()
    died(place, place.queue, *messages)
    place.send(b"by stomp", queue="DLQ")
    before = encoded(place, "DLQ", len(messages) + 1)
    records, left, reading = place.pull("drain", "DLQ")
    assert (left, reading.complete, reading.settled_position()) == ([], True, len(records))
    assert place.pull("drain", "DLQ")[0] == []
    own = of(place, records)
    assert len(own) == len(messages)
    assert [r.body for r in records if r not in own] == [b"by stomp"]
    target = place.connector.target_of(own[0], "origin")
    assert target == Target("queue", place.queue)
    letters = outgoing(own, target)
    previews = [place.connector.preview(o) for o in letters]
    assert {(one.problem, tuple(one.unless_named)) for one in previews} == {(None, ())}
    assert {s.outcome for s in published(place, place.queue, letters)} == {"confirmed"}
    after = encoded(place, place.queue, len(messages))
    assert sorted(map(without_to, after)) == sorted(without_to(one) for one in before[: len(messages)])
    back = received(place, place.queue, len(messages))
    for was, now in zip(messages, back, strict=True):
        assert (now.id, now.correlation_id, now.address) == (was.id, was.correlation_id, was.address)
        assert (now.content_type, now.user_id, now.durable) == (was.content_type, was.user_id, True)
    assert (back[0].priority, back[0].annotations["x-opt-mine"]) == (7, SEVEN)
    assert back[0].properties["dlq_replay_of"] == own[0].record_id
    assert not any(name.startswith("dlq_") for one in back for name in one.annotations or {})


def test_a_letter_is_called_as_its_sender_called_it_whichever_protocol_shows_it(
    place: Place, stomp: Place
) -> None:
    died(place, place.queue, *[Message(body="x", durable=True, id=one) for one in IDS])
    shown, copied = (of(place, one.pull("copy", "DLQ", force=True)[0]) for one in (stomp, place))
    taken = of(place, place.drain("DLQ"))
    assert [r.record_id for r in copied] == [r.record_id for r in taken]
    assert [r.message_id for r in taken] == ["text", "7", f"urn:uuid:{SEVEN}", "\\xff\x00"]
    assert [r.message_id for r in shown] == [r.message_id for r in taken]
    assert [r.physical_id for r in shown] == [r.physical_id for r in taken]


def test_a_letter_s_key_in_order_is_its_group_whichever_protocol_shows_it(place: Place, stomp: Place) -> None:
    died(place, place.queue, Message(body="x", durable=True, group_id="g"))
    copied = stomp.pull("copy", "DLQ", force=True)[0]
    for found in (copied, place.drain("DLQ")):
        [letter] = of(place, found)
        told = {"header": letter.headers, "property": letter.properties}
        keys = [told[kind].get(name) for kind, name in (key.split(":") for key in ARTEMIS.order_key)]
        assert [key for key in keys if key is not None] == ["g"]


def test_a_limit_counts_both_kinds(place: Place) -> None:
    died(place, place.queue, *[Message(body=b"x", durable=True) for _ in range(3)])
    place.send(*[b"y"] * 3, queue="DLQ")
    assert [len(place.drain("DLQ", limit=4)), len(place.drain("DLQ"))] == [4, 2]


def test_without_amqp_what_was_read_by_it_stays_and_says_why(place: Place, stomp: Place) -> None:
    died(place, place.queue, Message(body=b"x", durable=True))
    [record] = of(place, place.drain("DLQ"))
    preview = stomp.connector.preview(Outgoing(0, record, Target("queue", place.queue), {}))
    assert preview.problem == "it came by AMQP 1.0, and goes back only by it: set amqp_url"


def test_by_stomp_alone_what_it_cannot_show_is_named_and_harms_no_other(place: Place, stomp: Place) -> None:
    """Once more than Artemis' max-delivery-attempts for the others, had they been in flight."""
    kinds = [{"value": SEVEN}, {"n": 1}, {"value": timestamp(1)}, {"n": 2}]
    messages = [
        Message(body=b"%d" % n, inferred=True, durable=True, properties=p) for n, p in enumerate(kinds)
    ]
    died(place, place.queue, *messages)
    stomp.send(b"by stomp", queue="DLQ")
    for _ in range(11):
        copied, left, reading = stomp.pull("copy", "DLQ", force=True)
        assert ([r.body for r in of(place, copied)], len(left), reading.complete) == ([b"1", b"3"], 2, False)
        assert all("AMQP 1.0 that STOMP cannot show" in reason for reason in left)
    records, left, _ = stomp.pull("drain", "DLQ")
    assert sorted(r.body for r in records) == [b"1", b"3", b"by stomp"]
    assert stomp.drain("DLQ") == []
    queues = Management(stomp.settings).queues() or []
    assert not [name for name in queues if "probe" in name]
    assert [r.body for r in of(place, place.drain("DLQ"))] == [b"0", b"2"]


def test_copies_of_one_message_in_two_subscriptions_are_asked_for_each_by_itself(
    place: Place, stomp: Place
) -> None:
    news = f"{place.queue}.news"
    subscriptions = [f"{news}.{n}" for n in range(2)]
    for name in subscriptions:
        stomp.make_queue(name, news, "MULTICAST")
    before = stomp.depth("DLQ")
    with connected(place) as connection:
        connection.create_sender(news).send(Message(body=b"event", inferred=True, durable=True))
        for name in subscriptions:
            receiver = connection.create_receiver(f"{news}::{name}")
            receiver.receive(timeout=PATIENCE)
            receiver.reject()
    eventually(lambda: stomp.depth("DLQ") == before + 2)
    records, left, _ = stomp.pull("drain", "DLQ")
    assert ([record.headers.get("_AMQ_ORIG_QUEUE") for record in records], left) == (subscriptions, [])


def test_a_queue_that_is_named_in_full_is_read_by_stomp_alone_and_none_is_made(stomp: Place) -> None:
    name, address = f"{stomp.queue}.own", f"{stomp.queue}.address"
    full = f"{address}::{name}"
    stomp.make_queue(name, address)
    with connected(stomp) as connection:
        connection.create_sender(full).send(Message(body=b"x", inferred=True, durable=True, id="one"))
    for wrong in (f"{full}s", f"{stomp.queue}::{name}", f"{stomp.queue}::{stomp.queue}.*"):
        with pytest.raises(NotFound, match="no queue"):
            stomp.pull("drain", wrong)
    for queue, bodies in ((f"{address}::{stomp.queue}.*", [b"x"]), (full, [])):
        records, left, reading = stomp.pull("drain", queue)
        assert [(r.dead_letter_queue, r.body) for r in records] == [(full, body) for body in bodies]
        assert (left, reading.complete, reading.snapshot) == ([], True, len(bodies))
    assert [one for one in Management(stomp.settings).queues() or [] if stomp.queue in one] == [name]


def test_the_plan_says_what_would_change_of_a_letter_that_stomp_has_read(place: Place, stomp: Place) -> None:
    died(place, place.queue, Message(body=b"{}", inferred=True, durable=True, id=SEVEN, content_type="a/b"))
    [record] = of(place, stomp.drain("DLQ"))
    preview = stomp.connector.preview(Outgoing(0, record, Target("queue", place.queue), {}))
    assert preview.unless_named["letter"] == (
        "it came by AMQP 1.0 and was read by STOMP: it would go back without its message-id, content-type, "
        "with all properties as text, and its data section becomes a value of JMS"
    )
    warnings = stomp.connector.inspect(stomp.request(queue="DLQ").source).warnings
    assert any("leaves them out as risky" in warning for warning in warnings)


@pytest.mark.parametrize("source", ["{q}.dead", "{q}.graves::{q}.dead"])
def test_the_address_that_a_letter_died_to_does_not_go_back(place: Place, source: str) -> None:
    """It is not the name of the queue that keeps it."""
    place.manage("addAddressSettings", place.queue, {"deadLetterAddress": f"{place.queue}.graves"})
    place.make_queue(f"{place.queue}.dead", f"{place.queue}.graves")
    of_jms = {symbol("x-opt-jms-dest"): ubyte(0)}
    sent = [Message(durable=True, address=place.queue, annotations=of_jms), Message(durable=True)]
    died(place, place.queue, *sent, dead=f"{place.queue}.dead")
    sent_back(place, place.drain(source.format(q=place.queue)), Target("queue", place.queue))
    assert [one.address for one in received(place, place.queue, 2)] == [place.queue, None]


@pytest.mark.parametrize("source", ["DLQ.{q}", "{q}.graves::DLQ.{q}"])
def test_a_queue_that_artemis_makes_for_the_dead_is_read_whatever_they_came_by(
    place: Place, source: str
) -> None:
    settings = {"deadLetterAddress": f"{place.queue}.graves", "autoCreateDeadLetterResources": True}
    place.manage("addAddressSettings", place.queue, settings)
    place.send(b"by STOMP")
    for body in (b"by AMQP", b"which stays"):
        died(place, place.queue, Message(body=body, durable=True), dead=f"DLQ.{place.queue}")
    read = place.drain(source.format(q=place.queue))
    assert [record.headers["_AMQ_ORIG_QUEUE"] for record in read] == 2 * [place.queue]
    assert place.depth(f"DLQ.{place.queue}") == 0


def test_each_kind_of_target_is_reached_by_amqp(place: Place) -> None:
    to_a_queue = {symbol("x-opt-jms-dest"): ubyte(0)}
    died(place, place.queue, Message(body=b"x", durable=True, annotations=to_a_queue))
    [record] = of(place, place.drain("DLQ"))
    for n, (routing, name, queues) in enumerate([
        ("ANYCAST", "queue:{q}.own", ["own"]),
        ("MULTICAST", "queue:{q}.address::{q}.own", ["own"]),
        ("MULTICAST", "topic:{q}.address", ["own", "other"]),
    ]):  # fmt: skip
        here = f"{place.queue}.{n}"
        for queue in ("own", "other"):
            place.make_queue(f"{here}.{queue}", f"{here}.address", routing)
        sent_back(place, [record], Target(*name.format(q=here).split(":", 1)), here)
        assert [queue for queue in ("own", "other") if place.drain(f"{here}.{queue}")] == queues, name


def test_an_expired_letter_says_when_it_died_and_goes_back_without_its_expiry(place: Place) -> None:
    with connected(place) as connection:
        sender = connection.create_sender(place.queue)
        sender.send(Message(body=b"x", durable=True, ttl=0.05, expiry_time=1_000_000_000))
        with suppress(Timeout):
            connection.create_receiver(place.queue).receive(timeout=1)
    own = eventually(lambda: of(place, place.drain("ExpiryQueue")))
    assert own[0].dead_at is not None
    sent_back(place, own, Target("queue", place.queue))
    [back] = received(place, place.queue, 1)
    assert (back.expiry_time, back.ttl) == (0, 0)
