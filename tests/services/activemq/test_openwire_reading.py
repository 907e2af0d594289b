"""Reading by OpenWire: every class of message makes the trip there and back, and has one id.

On Artemis STOMP and OpenWire each hide what the other shows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from proton import Message
from support.archives import letter, letters_in
from support.brokers.activemq.amqp import connected
from support.brokers.activemq.broker import CLASSIC, OLDER
from support.brokers.activemq.fixtures import (
    Place,
    by_openwire,
    on_all,
    on_artemis,
    on_classic,
    on_newest_classic,
)
from support.brokers.activemq.sending import outgoing, sent_back

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import SendRequest, Target
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, Unreachable
from dlq.core.record import Record

pytestmark = pytest.mark.activemq


@pytest.mark.parametrize("stomp_broker", [OLDER, *CLASSIC], indirect=True)
def test_every_class_of_message_comes_back_as_java_sent_it(stomp: Place) -> None:
    here = by_openwire(stomp)
    stomp.java("ActiveMqClasses.java", "send", stomp.queue)
    before = stomp.shown("ActiveMqClasses.java", "show", stomp.queue)
    assert len(before) == 22
    stomp.java("ActiveMqClasses.java", "send", stomp.queue)
    records, left, reading = here.pull("drain")
    assert (len(records), left, reading.complete, reading.settled_position()) == (22, [], True, 22)
    assert {r.properties["class"] for r in records} == {
        "map", "stream", "object", "bytes", "blob", "text", "plain",
    }  # fmt: skip
    letters = sent_back(here, records, stomp.back)
    assert [here.connector.preview(o).problem for o in letters] == [None] * 22
    assert stomp.shown("ActiveMqClasses.java", "show", stomp.back.name) == before


@on_classic
def test_a_letter_has_one_id_whichever_way_it_was_read(stomp: Place) -> None:
    stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    stomp.java("ActiveMqAmqp.java", stomp.queue, "a", ids="UUID")
    odd = {"correlation-id": "a:b\\c\nd\re", "ünïcode": "wört €", "empty": "", "JMSXGroupID": "g"}
    stomp.send(bytes(range(256)) + b"\0MESSAGE\n\n\0", b"", **odd)
    looked = stomp.pull("copy")[0]
    seen = by_openwire(stomp).pull("copy")[0]
    taken = by_openwire(stomp).pull("drain")[0]
    assert len(looked) == 5
    assert differences(looked, seen) == differences(looked, taken) == []
    assert [r.record_id for r in looked] == [r.record_id for r in seen] == [r.record_id for r in taken]


@pytest.mark.parametrize("stomp_broker", [OLDER, *CLASSIC], indirect=True)
def test_a_text_with_nul_is_one_letter_whichever_way_it_was_read(stomp: Place, tmp_path: Path) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    store, here, source = LocalStore(str(tmp_path)), by_openwire(stomp), stomp.request().source
    [looked] = [r for r in stomp.pull("copy")[0] if r.body.startswith(b"nul")]
    copied = pull(store, stomp.connector, source, PullOptions("copy"))
    drained_too = pull(store, here.connector, source, PullOptions("drain"))
    assert (copied.captured, drained_too.captured, drained_too.recaptured) == (7, 5, 7)
    assert here.drain() == []
    [letter] = sent_back(here, [looked], stomp.back)
    assert here.connector.preview(letter).problem is None
    [again] = here.drain(stomp.back.name)
    assert (again.body, again.properties["class"]) == (looked.body, "text")


def differences(some: Sequence[Record], others: Sequence[Record]) -> list[object]:
    """Headers and bodies that are not the same, but for those of each delivery."""
    of_delivery = {"ack", "subscription", "redelivered"}
    return [
        (one.headers.get(name), other.headers.get(name), name)
        for one, other in zip(some, others, strict=True)
        for name in sorted({*one.headers, *other.headers} - of_delivery)
        if one.headers.get(name) != other.headers.get(name, "").replace("😀", "\ufffd\ufffd")
    ] + [(one.body, other.body) for one, other in zip(some, others, strict=True) if one.body != other.body]


@on_classic
def test_a_letter_says_when_it_died_and_one_that_was_only_sent_here_does_not(stomp: Place) -> None:
    began, origin = now(), f"ttl.{stomp.queue}"
    stomp.send(b"late", queue=origin, expires="1")
    [died] = [r for r in by_openwire(stomp).drain("ActiveMQ.DLQ") if r.origin == origin]
    assert died.dead_at is not None
    assert began - 1000 <= died.dead_at <= now()
    stomp.send(b"by hand", **{"original-destination": "/queue/orders"})
    assert [r.dead_at for r in by_openwire(stomp).drain()] == [None]


@on_newest_classic
def test_what_openwire_tells_of_a_letter_replaces_what_a_copy_by_stomp_kept(
    stomp: Place, tmp_path: Path
) -> None:
    for _ in range(2):
        stomp.java("ActiveMqTyped.java", "send", stomp.queue)
    store, source = LocalStore(str(tmp_path / "archive")), stomp.request().source
    assert pull(store, stomp.connector, source, PullOptions("copy")).captured == 4
    here = by_openwire(stomp).connector
    drained = pull(store, here, source, PullOptions("drain", limit=3))
    assert (drained.captured, drained.recaptured, drained.acknowledged) == (0, 3, 3)
    letters = letters_in(store)
    assert len({record.record_id for record in letters}) == 4
    assert [record.properties.get("type of double") for record in letters].count("double") == 3
    assert [record.properties.get("JMSXGroupID") for record in letters].count("g") == 3
    assert pull(store, here, source, PullOptions("drain")).recaptured == 1
    assert all(record.properties["type of int"] == "int" for record in letters_in(store))


@on_artemis
def test_every_class_of_message_of_artemis_comes_back_as_java_sent_it(stomp: Place) -> None:
    here = by_openwire(stomp)
    before = stomp.shown("ArtemisClasses.java", "die", stomp.queue)
    assert len(before) == 33
    records, left, reading = here.pull("drain", "DLQ")
    assert (left, reading.complete, reading.settled_position()) == ([], True, len(records))
    own = [record for record in records if record.origin == stomp.queue]
    assert {r.properties["class"] for r in own} == {"map", "stream", "object", "bytes", "text", "plain"}
    letters = sent_back(here, own, stomp.back)
    assert [here.connector.preview(o).problem for o in letters] == [None] * 33
    assert stomp.shown("ArtemisClasses.java", "show", stomp.back.name) == before


@on_artemis
def test_a_letter_of_artemis_has_one_id_with_openwire_and_without(stomp: Place) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    looked, left, _ = stomp.pull("copy", force=True)
    seen, none_left, _ = by_openwire(stomp).pull("copy", force=True)
    taken, still_none, _ = by_openwire(stomp).pull("drain")
    assert (len(looked), len(left), none_left, still_none, stomp.drain()) == (7, 5, [], [], [])
    assert {r.record_id for r in looked} < {r.record_id for r in seen} == {r.record_id for r in taken}
    assert all((r.message_id or "").startswith("ID:") for r in (*looked, *taken))
    assert all((r.physical_id or "").isdecimal() for r in taken)
    [grouped] = [r for r in taken if "amount" in r.headers]
    assert (grouped.headers["amount"], grouped.properties["type of amount"]) == ("7", "int")


@on_artemis
def test_letters_come_and_go_by_tls_and_an_unknown_authority_is_refused(stomp: Place) -> None:
    there = f"127.0.0.1:{stomp.broker.openwire_tls}"
    trusting = stomp.by(openwire_url=f"ssl://{there}", ca_file=stomp.broker.ca_file)
    stomp.send(b"a")
    with pytest.raises(Unreachable, match=r"TLS failed: .*; is ca_file right"):
        trusting.by(ca_file=None).drain()
    letters = trusting.drain()
    sent_back(trusting, letters, stomp.back)
    everything = trusting.by(url=f"stomp+tls://{stomp.broker.user}@{there}")
    for record in [*letters, *everything.drain(stomp.back.name)]:
        assert (record.body, record.properties["class"]) == (b"a", "bytes")


@on_artemis
def test_beside_messages_of_amqp_letters_keep_what_openwire_alone_shows(stomp: Place) -> None:
    stomp.make_queue()
    with connected(stomp) as connection:
        sender = connection.create_sender(stomp.queue)
        for number in range(3):
            sender.send(Message(body=b"amqp", inferred=True, durable=True, id=f"id{number}"))
    typed = {"class": "text", "type of amount": "int"}
    headers = {"amount": "5", "token": "[B@1a2b3c4d"}  # not bytes, of which Java shows the address so
    made = [letter(n, broker_kind="activemq", headers=headers, properties=typed, body=b"t") for n in range(3)]
    sent_back(by_openwire(stomp), made, Target("queue", stomp.queue), f"{stomp.queue}.1")
    there = f"ssl://127.0.0.1:{stomp.broker.openwire_tls}"  # which speaks no AMQP
    records, left, reading = stomp.by(openwire_url=there, ca_file=stomp.broker.ca_file).pull("drain")
    found = [one for one in records if one.body == b"t"]
    assert (len(records), left, reading.complete) == (6, [], True)
    assert [one.properties.get("type of amount") for one in found] == ["int"] * 3
    assert [one.headers["token"] for one in found] == ["[B@1a2b3c4d"] * 3


@on_artemis
def test_each_right_that_is_missing_is_named_and_nothing_is_lost(stomp: Place) -> None:
    sealed, reader = f"sealed.{stomp.queue}", by_openwire(stomp.as_reader())
    stomp.send(b"a")
    stomp.send(b"b", queue=sealed)
    refusals: dict[str, Callable[[], object]] = {
        r"^.*'BROWSE' .*; with openwire_url it needs the permission browse.*$": lambda: reader.drain(sealed),
        r"^.*'SEND' .*; .* needs <security-setting match=\"dlq\.replay\.#\">.*$": (
            lambda: reader.connector.publisher(SendRequest("plan", 10))
        ),
    }
    for said, refused in refusals.items():
        with pytest.raises(AccessDenied, match=said):
            refused()
    assert [(r.body, r.properties["class"]) for r in reader.drain()] == [(b"a", "bytes")]
    assert [r.body for r in by_openwire(stomp).drain(sealed)] == [b"b"]


@on_classic
def test_names_with_a_colon_or_a_backslash_are_what_they_were_and_stomp_alone_cannot_send_them(
    stomp: Place,
) -> None:
    here = by_openwire(stomp)
    names = {"ns:tenant": "acme", "ns:amount": "5", "path\\x": "b", "x\\cy": "c"}
    typed = {"class": "text", "type of ns:amount": "int"}
    made = letter(1, broker_kind="activemq", headers=names, properties=typed, body=b"t", body_size=1)
    sent_back(here, [made], Target("queue", stomp.queue), f"{stomp.queue}.1")
    [seen], [taken] = (one.pull(mode)[0] for one, mode in ((stomp, "copy"), (here, "drain")))
    for record in (seen, taken):
        assert names.items() <= record.headers.items()
    assert typed.items() <= taken.properties.items()
    [problem] = [stomp.connector.preview(o).problem for o in outgoing([seen], stomp.back)]
    assert problem == (
        "the name of its property 'ns:tenant' has a colon or a line break, which STOMP cannot say; "
        "set openwire_url"
    )
    sent_back(here, [taken], stomp.back)
    [back] = here.drain(stomp.back.name)
    assert names.items() <= back.headers.items()
    assert typed.items() <= back.properties.items()


@on_all
def test_names_with_a_backslash_are_what_they_were_by_stomp(sender: Place) -> None:
    sender.send(b"t", **{"a\\b": "1", "x:y": "2"})
    [taken] = sender.drain()
    sent_back(sender, [taken], sender.back)
    [back] = sender.drain(sender.back.name)
    shown = [{name for name in one.headers if "\\" in name or ":" in name} for one in (taken, back)]
    assert shown[0] == shown[1] == ({"a\\b", "x:y"} if sender.broker.artemis else {"a\\\\b", "x\\cy"})
