"""Artemis by STOMP and OpenWire together: each hides what the other shows."""

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import Place, by_openwire, on_artemis
from support.brokers.activemq.sending import outgoing, published

from dlq.connectors.activemq import artemis_browse
from dlq.connectors.base import Target

pytestmark = pytest.mark.activemq


def decoded(told: list[str]) -> list[str]:
    """What a Java consumer got."""
    return [bytes.fromhex(each).decode() for each in told]


@on_artemis
def test_every_class_of_message_comes_back_as_java_sent_it(stomp: Place) -> None:
    here, back = by_openwire(stomp), f"{stomp.queue}.back"
    before = decoded(stomp.java("ArtemisClasses.java", "die", stomp.queue))
    assert len(before) == 33
    records, left, reading = here.pull("drain", "DLQ")
    assert (left, reading.complete, reading.settled()) == ([], True, len(records))
    own = [record for record in records if record.origin == stomp.queue]
    assert {r.properties["class"] for r in own} == {"map", "stream", "object", "bytes", "text", "plain"}
    letters = outgoing(own, Target("queue", back))
    assert [here.connector.preview(o.record, o.target, {}, False).problem for o in letters] == [None] * 33
    assert {sent.outcome for sent in published(here, stomp.queue, letters)} == {"confirmed"}
    assert decoded(stomp.java("ArtemisClasses.java", "show", back)) == before


@on_artemis
def test_a_letter_has_one_id_with_openwire_and_without(stomp: Place) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    looked, left, _ = stomp.pull("copy", force=True)
    seen, none_left, _ = by_openwire(stomp).pull("copy", force=True)
    taken, still_none, _ = by_openwire(stomp).pull("drain")
    assert (len(looked), len(left), none_left, still_none, stomp.drain()) == (7, 5, [], [], [])
    assert {r.record_id for r in looked} < {r.record_id for r in seen} == {r.record_id for r in taken}
    [grouped] = [r for r in taken if "amount" in r.headers]
    assert (grouped.headers["amount"], grouped.properties["type of amount"]) == ("7", "int")


@on_artemis
def test_what_is_more_than_can_be_held_stays_for_the_next_pull(
    stomp: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    monkeypatch.setattr(artemis_browse, "_MOST_KEPT", 50)
    records, left, _ = by_openwire(stomp).pull("drain")
    assert len(records) + len(left) == 12
    assert left
    assert all("than is held at once; pull again" in reason for reason in left)
    monkeypatch.undo()
    assert len(by_openwire(stomp).drain()) == len(left)


@on_artemis
def test_a_letter_of_a_subscription_is_shown_whole_too(stomp: Place) -> None:
    topic, queue = f"{stomp.queue}.news", stomp.queue.replace(".", "-")
    stomp.java("ArtemisSubscription.java", topic, queue)
    [record] = by_openwire(stomp).drain(queue)
    assert (record.properties["class"], record.properties["type of amount"]) == ("map", "int")


@on_artemis
def test_only_the_letter_that_the_broker_cannot_store_is_refused(stomp: Place) -> None:
    here, back = by_openwire(stomp), Target("queue", f"{stomp.queue}.back")
    letters = outgoing([letter(n, broker_kind="artemis", body=b"%d" % n) for n in range(40)], back)
    too_long = {f"p{n}": "x" * 60_000 for n in range(12)}
    letters[13] = letters[13]._replace(record=letters[13].record._replace(headers=too_long))
    sent = {s.number: s for s in published(here, stomp.queue, letters)}
    assert {n for n, s in sent.items() if s.outcome == "refused"} == {13}
    assert "bigger than the max record size" in (sent[13].detail or "")
    assert {s.outcome for n, s in sent.items() if n != 13} == {"confirmed"}
    assert len(stomp.drain(back.name)) == 39


@on_artemis
def test_a_second_publish_of_the_same_letters_changes_nothing(stomp: Place) -> None:
    here, back = by_openwire(stomp), Target("queue", f"{stomp.queue}.back")
    letters = outgoing([letter(n, broker_kind="artemis", body=b"%d" % n) for n in range(3)], back)
    for detail in (None, "the broker had taken this replay before (duplicate id)"):
        said = [(s.outcome, s.detail) for s in published(here, stomp.queue, letters)]
        assert said == [("confirmed", detail)] * 3
    assert len(stomp.drain(back.name)) == 3
