"""Letters that real Classic brokers killed carry the evidence that the rules lean on."""

import re

import pytest
from support.brokers.activemq.fixtures import Place, on_classic
from support.waiting import eventually

from dlq.analyzers.rules import Facts, judge
from dlq.connectors.activemq.stomp.read import ack_id
from dlq.core.record import Record

pytestmark = [pytest.mark.activemq, on_classic]

DLQ = "ActiveMQ.DLQ"


def refuse(place: Place, queue: str, times: int = 1) -> None:
    """NACK the next message of a queue, again when it comes back."""
    link, refused = place.consumer(queue), 0

    def is_over() -> bool:
        nonlocal refused
        for frame in link.receive(0.2):
            link.send(b"NACK\nid:%b\n\n\0" % ack_id(frame.head))
            refused += 1
        return refused >= times

    eventually(is_over)
    link.ping()
    link.close()
    assert refused == times


def letters_of(place: Place, origin: str, dead: str = DLQ) -> list[Record]:
    """The letters of one origin, looked at; other tests share the queue."""
    return [r for r in place.pull("copy", dead)[0] if r.origin == origin]


def own_letters(place: Place) -> list[Record]:
    """The letters of all origins that carry this test's name."""
    names = re.compile(rf"(.*\.)?{re.escape(place.queue)}(\..*)?")
    return [r for r in place.pull("copy", DLQ)[0] if names.fullmatch(r.origin or "")]


def test_a_stomp_nack_leaves_no_cause(stomp: Place) -> None:
    stomp.send(b"x")
    refuse(stomp, stomp.queue)
    [letter] = letters_of(stomp, stomp.queue)
    assert letter.failure_text is None
    assert letter.headers["originalExpiration"] == "0"


def test_an_amqp_client_that_rejects_leaves_no_cause(stomp: Place) -> None:
    rejected, undeliverable_here = "2", "5"
    stomp.send(b"x", b"y")
    stomp.java("ActiveMqReject.java", stomp.queue, rejected, undeliverable_here)
    letters = letters_of(stomp, stomp.queue)
    assert [(letter.body, letter.failure_text) for letter in letters] == [(b"x", None), (b"y", None)]


def test_the_redelivery_plugin_leaves_its_delay(stomp: Place) -> None:
    origin = f"rp.{stomp.queue}"
    stomp.send(b"x", queue=origin)
    refuse(stomp, origin, times=3)
    [letter] = letters_of(stomp, origin)
    assert letter.failure_text is None
    assert letter.headers["redeliveryDelay"]


def test_a_non_persistent_letter_says_that_it_was_none(stomp: Place) -> None:
    origin = f"indiv.{stomp.queue}"
    stomp.send(b"x", queue=origin, persistent="false")
    refuse(stomp, origin)
    [letter] = letters_of(stomp, origin, f"DLQ.{origin}")
    assert letter.headers["originalDeliveryMode"] == "NON_PERSISTENT"
    assert letter.persistent is True


def test_each_death_that_needs_a_jms_client_leaves_its_text(stomp: Place) -> None:
    name = stomp.queue
    stomp.java("ActiveMqDeaths.java", name)
    texts = {
        r.origin: (r.failure_text or "").removeprefix("java.lang.Throwable: ") for r in own_letters(stomp)
    }
    policy = "redelivery policy limit:RedeliveryPolicy {"
    assert texts[f"{name}.rolledback"].startswith(f"Delivery[2] exceeds {policy}")
    assert texts[f"{name}.rolledback"].endswith(", cause:null")
    assert texts[f"{name}.thrown"].endswith(", cause:java.lang.IllegalStateException: boom\nsecond line")
    assert re.match(r"Dispatch\[2\] to ID:\S+ exceeds " + re.escape(policy), texts[f"{name}.broken"])
    assert texts[f"dup.{name}"] == f"duplicate from store for queue://dup.{name}"
    assert re.fullmatch(r"(TopicSubDiscard|Subscription discard)\. ID:ID:\S+", texts[f"slow.{name}"])


def test_what_a_virtual_topic_brought_is_alive(stomp: Place) -> None:
    topic = f"VirtualTopic.{stomp.queue}"
    queue = f"Consumer.A.{topic}"
    link = stomp.consumer(queue)
    link.request("SEND", {"destination": f"/topic/{topic}", "persistent": "true"}, b"alive")
    link.ping()
    link.close()
    [letter] = stomp.drain(queue)
    assert (letter.origin, judge(letter, Facts()).cause) == (topic, "unknown")


def test_what_was_moved_out_of_the_dead_letter_queue_did_not_die_there(stomp: Place) -> None:
    parked = f"parked.{stomp.queue}"
    stomp.send(b"x")
    refuse(stomp, stomp.queue)
    [dead] = letters_of(stomp, stomp.queue)
    selector = f"JMSMessageID = '{dead.message_id}'"
    move = "moveMatchingMessagesTo(java.lang.String,java.lang.String)"
    stomp.execute(move, selector, parked, queue=DLQ)
    [letter] = stomp.drain(parked)
    assert judge(dead, Facts()).cause == "poison_ack"
    assert judge(letter, Facts()).cause == "unknown"


def test_a_stale_cause_stays_on_a_letter_that_died_again(stomp: Place) -> None:
    origin = f"ttl.{stomp.queue}"
    stomp.send(b"x", queue=origin, dlqDeliveryFailureCause="old: text")
    refuse(stomp, origin)
    [letter] = letters_of(stomp, origin)
    assert letter.failure_text == "old: text"
