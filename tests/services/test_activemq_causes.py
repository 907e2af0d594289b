"""Letters that real Classic brokers killed carry the evidence that the rules lean on."""

import json
import time
from typing import Any

import pytest
from services.activemq_fixtures import Place, on_classic

from dlq.connectors.activemq_reading import _ack_id
from dlq.connectors.stomp_frames import encode
from dlq.core.record import Record

pytestmark = [pytest.mark.activemq, on_classic]

DLQ = "ActiveMQ.DLQ"


def refuse(place: Place, queue: str, times: int = 1) -> None:
    """NACK the next message of a queue, again when it comes back."""
    link = place.link()
    given = {"destination": f"/queue/{queue}", "id": link.token, "ack": "client-individual"}
    link.request("SUBSCRIBE", given)
    deadline = time.monotonic() + 40
    while times and time.monotonic() < deadline:
        for frame in link.receive(0.2):
            link.send(b"NACK\nid:%b\n\n\0" % _ack_id(frame.head))
            times -= 1
    link.ping()
    link.close()
    assert not times


def letters_of(place: Place, origin: str, dead: str = DLQ) -> list[Record]:
    """The letters of one origin, looked at; other tests share the queue."""
    return [r for r in place.pull("copy", dead)[0] if r.origin == origin]


def test_a_stomp_nack_leaves_no_cause(stomp: Place) -> None:
    stomp.send(b"x")
    refuse(stomp, stomp.queue)
    [letter] = letters_of(stomp, stomp.queue)
    assert letter.failure_text is None
    assert letter.headers["originalExpiration"] == "0"


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


def test_a_rolled_back_message_names_its_deliveries_and_a_listeners_exception(stomp: Place) -> None:
    said: Any = stomp.java("ActiveMqRollback.java", stomp.queue)
    assert said == {"rolled_back": 1, "thrown": 1}
    texts = sorted(r.failure_text or "" for r in letters_of(stomp, stomp.queue))
    assert texts[0].startswith(
        "java.lang.Throwable: Delivery[2] exceeds redelivery policy limit:RedeliveryPolicy {"
    )
    assert [text.rpartition(", cause:")[2] for text in texts] == [
        "java.lang.IllegalStateException: boom\nsecond line",
        "null",
    ]


def test_a_stale_cause_stays_on_a_letter_that_died_again(stomp: Place) -> None:
    origin = f"ttl.{stomp.queue}"
    frame = encode(
        "SEND",
        {**stomp.destination(origin), "persistent": "true", "dlqDeliveryFailureCause": "old: text"},
        b"x",
    )
    stomp.send_frames([frame])
    refuse(stomp, origin)
    [letter] = letters_of(stomp, origin)
    assert json.dumps(letter.failure_text) == '"old: text"'
