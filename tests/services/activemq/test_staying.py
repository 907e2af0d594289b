"""Letters that STOMP cannot carry, name or read: they stay in their queue, or are drained by what can."""

from pathlib import Path
from typing import Any

import pytest
from proton import Message
from support.archives import letter, letters_in
from support.brokers.activemq.amqp import died
from support.brokers.activemq.fixtures import Place, by_openwire, on_artemis, on_classic, on_newest_classic
from support.brokers.activemq.sending import outgoing, published
from support.waiting import eventually

from dlq.archive import manifests
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.read import scan
from dlq.connectors.activemq.stomp.codec import encode
from dlq.connectors.base import Mode, Target
from dlq.core.errors import PoisonMessage
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
@pytest.mark.parametrize("length", ["0", "7"])
def test_a_property_that_is_called_like_a_length_makes_no_bytes_of_a_map(stomp: Place, length: str) -> None:
    entries, given = commands.properties({"order": "5"}, {}), {"property content-length": length}
    properties = {"class": "map", **given}
    made = letter(1, broker_kind="activemq", properties=properties, body=entries, body_size=len(entries))
    published(by_openwire(stomp), f"{stomp.queue}.1", outgoing([made], Target("queue", stomp.queue)))
    records, left, _ = stomp.pull("drain")
    assert (records, [reason.partition(":")[0] for reason in left]) == ([], ["a message of class map"])
    [kept] = by_openwire(stomp).drain()
    assert (kept.body, given.items() <= kept.properties.items()) == (entries, True)


@on_artemis
def test_a_map_that_somebody_made_of_a_message_of_amqp_is_none(stomp: Place) -> None:
    entries = commands.properties({"order": "5"}, {})
    given = {"headers": {"JMS_AMQP_ORIGINAL_ENCODING": "5"}, "properties": {"class": "map"}}
    made = letter(1, broker_kind="activemq", body=entries, body_size=len(entries), **given)
    published(by_openwire(stomp), f"{stomp.queue}.1", outgoing([made], Target("queue", stomp.queue)))
    records, left, _ = stomp.pull("drain")
    assert (records, [reason.partition(":")[0] for reason in left]) == ([], ["a message of class map"])
    assert len(by_openwire(stomp).drain()) == 1


@on_artemis
def test_bytes_that_neither_stomp_nor_openwire_shows_stay_with_their_letter(sender: Place) -> None:
    sender.java("ArtemisClasses.java", "bytes", sender.queue)
    for _ in range(2):
        records, left, _ = sender.pull("drain")
        assert [why.partition(", which")[0] for why in left] == [
            "its 'token' holds bytes", "its 'correlation-id' holds bytes",
        ]  # fmt: skip
        sender.send(b"text")
    assert ([r.body for r in records], sender.depth(sender.queue)) == ([b"text"], 3)


@on_artemis
def test_bytes_of_a_message_of_amqp_wait_for_amqp(stomp: Place) -> None:
    stomp.make_queue()
    died(stomp, stomp.queue, Message(body="x", durable=True, properties={"token": b"\1"}))
    [why] = [why for why in stomp.pull("drain", "DLQ")[1] if "holds bytes" in why]
    assert why.endswith("it stays; set amqp_url")
    [taken] = [r for r in by_openwire(stomp).drain("DLQ") if r.origin == stomp.queue]
    assert taken.headers["token"] == "\1"


@on_classic
def test_without_jolokia_empty_texts_need_the_word_of_the_operator(stomp: Place) -> None:
    stomp.send_frames([text(stomp.destination(), b""), text(stomp.destination(), b"full")])
    stomp.send(b"")
    place = stomp.by(jolokia_url=None)
    records, left, _ = place.pull("drain")
    assert ([r.body for r in records], len(left)) == ([b"full", b""], 1)
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
    stomp.send(b"c")
    place = stomp.by(jolokia_url=None)
    for expected in ([b"a", b"b", b"c"], []):
        records, left, reading = place.pull("drain")
        assert ([r.body[-1:] for r in records], len(left)) == (expected, 1)
        assert reading.settled_position() == len(expected)


@on_classic
def test_a_text_with_nul_keeps_no_letter_of_its_pattern_from_being_settled(
    stomp: Place, tmp_path: Path
) -> None:
    nul = letter(1, broker_kind="activemq", properties={"class": "text"}, body=b"nul\0", body_size=4)
    first, second = f"{stomp.queue}.a", f"{stomp.queue}.b"
    published(by_openwire(stomp), stomp.queue, outgoing([nul], Target("queue", first)))
    for queue in (first, second):
        stomp.send(queue.encode(), queue=queue)
    store, source = LocalStore(str(tmp_path / "archive")), stomp.request(queue=f"{stomp.queue}.*").source
    taken = pull(store, stomp.connector, source, PullOptions("drain"))
    assert (taken.captured, taken.acknowledged, taken.left, taken.skipped) == (3, 2, 1, 1)
    segments = [(manifest.rows, manifest.settled) for manifest in manifests.list_committed(store)]
    assert segments == [(2, True), (1, False)]


@on_newest_classic
@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_a_message_that_is_longer_than_what_is_read_at_once_stays_and_the_rest_is_taken(
    stomp: Place, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.connectors.activemq.read.scan.MAX_FRAME", 50_000)
    stomp.send(b"a", bytes(700_000), b"b", bytes(50_000), b"c")
    here = by_openwire(stomp)
    records, left, _ = here.pull(mode)
    assert [record.body for record in records] == [b"a", b"b", b"c"]
    assert [why.partition(" bytes, more than the 50000")[1] for why in left] == [
        " bytes, more than the 50000"
    ] * 2
    monkeypatch.undo()
    there = [len(record.body) for record in stomp.drain()]
    assert there == ([700_000, 50_000] if mode == "drain" else [1, 700_000, 1, 50_000, 1])


@on_newest_classic
def test_a_letter_with_headers_that_stomp_does_not_bring_out_is_named_and_the_way_out(
    stomp: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.connectors.activemq.stomp.codec.MAX_HEAD", 2**20)
    here = by_openwire(stomp)
    huge = letter(1, broker_kind="activemq", headers={"huge": "x" * 2**21}, body=b"h", body_size=1)
    stomp.send(b"a", b"b")
    published(here, stomp.queue, outgoing([huge], Target("queue", stomp.queue)))
    stomp.send(b"c")
    store = LocalStore(str(tmp_path / "archive"))
    taken = pull(store, stomp.connector, stomp.request().source, PullOptions("drain"))
    assert 1 <= taken.captured <= 3  # the broker chooses what it gives first after the cut
    assert isinstance(taken.error, PoisonMessage)
    assert "bytes of headers, which STOMP does not bring out; set openwire_url" in str(taken.error)

    def all_are_there() -> bool:  # the broker gives back in its own time what STOMP had
        assert pull(store, here.connector, here.request().source, PullOptions("drain")).error is None
        return len(letters_in(store)) >= 4

    eventually(all_are_there)
    assert (len(letters_in(store)), here.drain()) == (4, [])
