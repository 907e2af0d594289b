"""Artemis by STOMP and OpenWire together: each hides what the other shows."""

from collections.abc import Callable

import pytest
from support.brokers.activemq.fixtures import Place, by_openwire, on_artemis
from support.brokers.activemq.sending import sent_back

from dlq.connectors.base import SendRequest
from dlq.core.errors import AccessDenied, Unreachable

pytestmark = pytest.mark.activemq


def decoded(told: list[str]) -> list[str]:
    """What a Java consumer got."""
    return [bytes.fromhex(each).decode() for each in told]


@on_artemis
def test_every_class_of_message_comes_back_as_java_sent_it(stomp: Place) -> None:
    here = by_openwire(stomp)
    before = decoded(stomp.java("ArtemisClasses.java", "die", stomp.queue))
    assert len(before) == 33
    records, left, reading = here.pull("drain", "DLQ")
    assert (left, reading.complete, reading.settled_position()) == ([], True, len(records))
    own = [record for record in records if record.origin == stomp.queue]
    assert {r.properties["class"] for r in own} == {"map", "stream", "object", "bytes", "text", "plain"}
    letters = sent_back(here, own, stomp.back)
    assert [here.connector.preview(o).problem for o in letters] == [None] * 33
    assert decoded(stomp.java("ArtemisClasses.java", "show", stomp.back.name)) == before


@on_artemis
def test_a_letter_has_one_id_with_openwire_and_without(stomp: Place) -> None:
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
