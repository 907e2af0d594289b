"""Letters that STOMP cannot carry or name: they stay in their queue, or are drained by what names them."""

from typing import Any

import pytest
from support.brokers.activemq.fixtures import Place, on_classic, on_newest_classic

from dlq.connectors.activemq.read import scan
from dlq.connectors.activemq.stomp.codec import encode
from dlq.core.record import FLAG_INNER_NUL

pytestmark = pytest.mark.activemq


def text(destination: Any, body: bytes, **headers: str) -> bytes:
    """A SEND without content-length, which brokers keep as a text message."""
    return encode("SEND", {**destination, "persistent": "true", **headers})[:-1] + body + b"\0"


@on_classic
def test_what_stomp_cannot_carry_stays_in_its_queue_and_is_listed(stomp: Place) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    detailed = stomp.by(jolokia_details=True)
    records, left, _ = detailed.pull("drain")
    grouped = {"class": "text", "JMSXGroupID": "g", "type of amount": "int"}
    assert grouped.items() <= records[3].properties.items()
    assert records[0].properties == {"class": "bytes"}
    assert [r.body for r in records] == [
        b"\x00\x01\x02\xff", b"", b"", "emoji 😀 é".encode(), b"after nul", b"last\x1b",
        b"nul\0in\0MESSAGE\n text",
    ]  # fmt: skip
    assert [r.flags for r in records] == [None] * 6 + [FLAG_INNER_NUL]
    assert sorted(reason.split(":")[0] for reason in left) == [
        "a message of class map", "a message of class other", "a message of class other",
        "a message of class other", "a message of class other", "a text with NUL",
    ]  # fmt: skip
    again, still, _ = stomp.pull("drain")
    assert ([r.body for r in again], len(still)) == ([b"nul\0in\0MESSAGE\n text"], 6)


@on_classic
def test_jolokia_finds_letters_of_a_queue_with_a_colon_in_its_name(stomp: Place) -> None:
    queue = f"{stomp.queue}.client:sub"
    stomp.send_frames([text(stomp.destination(queue), b"")])
    assert [r.body for r in stomp.drain(queue)] == [b""]


@on_classic
def test_without_jolokia_empty_texts_need_the_word_of_the_operator(stomp: Place) -> None:
    stomp.send_frames([text(stomp.destination(), b""), text(stomp.destination(), b"full")])
    place = stomp.by(jolokia_url=None)
    records, left, _ = place.pull("drain")
    assert ([r.body for r in records], len(left)) == ([b"full"], 1)
    assert [r.body for r in place.drain(include_empty=True)] == [b""]


@on_classic
def test_a_letter_that_must_stay_among_thousands_loses_and_doubles_no_other(stomp: Place) -> None:
    bodies = [b"%d" % n for n in range(6500)]
    send = {**stomp.destination(), "persistent": "true"}
    frames = [encode("SEND", send, body) for body in bodies]
    stomp.send_frames([*frames[:3200], text(stomp.destination(), b""), *frames[3200:]])
    place = stomp.by(jolokia_url=None)
    records, left, _ = place.pull("drain")
    assert (sorted(r.body for r in records), len(left)) == (sorted(bodies), 1)
    assert [r.body for r in records[:3200]] == bodies[:3200]
    assert place.pull("drain")[0] == []


@on_newest_classic
@pytest.mark.parametrize("ids", ["DEFAULT", "UUID", "UUID_STRING"])
def test_letters_of_amqp_producers_alone_are_drained(stomp: Place, ids: str) -> None:
    stomp.java("ActiveMqAmqp.java", stomp.queue, "a", "b", ids=ids)
    records, left, reading = stomp.pull("drain")
    assert ([r.body[-1:] for r in records], left) == ([b"a", b"b"], [])
    assert (reading.complete, reading.settled_position(), stomp.drain()) == (True, 2, [])


@on_newest_classic
@pytest.mark.parametrize("cumulative", [True, False])
def test_more_letters_of_amqp_producers_than_a_window_holds_are_drained_and_no_newer_ones(
    stomp: Place, cumulative: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "WINDOW_LETTERS", 300)
    monkeypatch.setattr(scan, "_forgets", lambda _version: cumulative)
    stomp.java("ActiveMqAmqp.java", stomp.queue, *map(str, range(700)))
    stomp.send(b"known to STOMP")
    stomp.java("ActiveMqAmqp.java", stomp.queue, *map(str, range(701, 800)))
    records, left, reading = stomp.pull("drain", limit=760)
    assert (len({r.message_id for r in records}), left, reading.settled_position()) == (760, [], 760)
    assert [r.body[-3:] for r in stomp.drain()] == [b"%d" % n for n in range(760, 800)]


@on_classic
def test_a_letter_that_must_stay_stays_among_those_of_amqp_producers(stomp: Place) -> None:
    stomp.java("ActiveMqAmqp.java", stomp.queue, "a")
    stomp.send_frames([text(stomp.destination(), b"")])
    stomp.java("ActiveMqAmqp.java", stomp.queue, "b")
    place = stomp.by(jolokia_url=None)
    for expected in ([b"a", b"b"], []):
        records, left, _ = place.pull("drain")
        assert ([r.body[-1:] for r in records], len(left)) == (expected, 1)
