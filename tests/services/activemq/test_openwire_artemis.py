"""Artemis by STOMP and OpenWire together: each hides what the other shows."""

import pytest
from support.archives import letter
from support.brokers.activemq.fixtures import PASSWORD_VARIABLE, WAYS, Place, by_openwire, on_artemis
from support.brokers.activemq.sending import outgoing, published

from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.read import browse
from dlq.connectors.base import SendRequest, Target
from dlq.core.errors import AccessDenied, Unreachable

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
    assert (left, reading.complete, reading.settled_position()) == ([], True, len(records))
    own = [record for record in records if record.origin == stomp.queue]
    assert {r.properties["class"] for r in own} == {"map", "stream", "object", "bytes", "text", "plain"}
    letters = outgoing(own, Target("queue", back))
    assert [here.connector.preview(o).problem for o in letters] == [None] * 33
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
    assert all((r.message_id or "").startswith("ID:") for r in (*looked, *taken))
    assert all((r.physical_id or "").isdecimal() for r in taken)
    [grouped] = [r for r in taken if "amount" in r.headers]
    assert (grouped.headers["amount"], grouped.properties["type of amount"]) == ("7", "int")


@on_artemis
def test_what_is_more_than_can_be_held_stays_for_the_next_pull(
    stomp: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stomp.java("ActiveMqBodies.java", stomp.queue)
    monkeypatch.setattr(browse, "MOST_KEPT", 50)
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
@pytest.mark.parametrize("way", WAYS)
def test_only_letters_to_an_address_that_may_not_be_written_to_are_refused(stomp: Place, way: str) -> None:
    here, back, denied = WAYS[way](stomp), Target("queue", f"{stomp.queue}.back"), {3, 4, 230, 299}
    letters = outgoing([letter(n, broker_kind="artemis", body=b"%d" % n) for n in range(300)], back)
    forbidden = Target("queue", f"forbidden.{stomp.queue}")
    letters = [one._replace(target=forbidden) if one.number in denied else one for one in letters]
    sent = {s.number: s for s in published(here, stomp.queue, letters)}
    assert {n for n, s in sent.items() if s.outcome == "refused"} == denied
    assert forbidden.name in (sent[230].detail or "")
    assert {s.outcome for n, s in sent.items() if n not in denied} == {"confirmed"}
    assert sorted(int(r.body) for r in here.drain(back.name)) == [n for n in range(300) if n not in denied]


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


def in_one_line(error: BaseException, *secrets: str) -> bool:
    return "\n" not in str(error) and not any(secret in str(error) for secret in secrets)


@on_artemis
def test_letters_come_and_go_by_tls_and_an_unknown_authority_is_refused(stomp: Place) -> None:
    there, back = f"127.0.0.1:{stomp.broker.openwire_tls}", Target("queue", f"{stomp.queue}.back")
    trusting = stomp.by(openwire_url=f"ssl://{there}", ca_file=stomp.broker.ca_file)
    stomp.send(b"a")
    with pytest.raises(Unreachable, match=r"TLS failed: .*; is ca_file right") as caught:
        trusting.by(ca_file=None).drain()
    assert in_one_line(caught.value)
    letters = trusting.drain()
    assert [(r.body, r.properties["class"]) for r in letters] == [(b"a", "bytes")]
    assert [s.outcome for s in published(trusting, stomp.queue, outgoing(letters, back))] == ["confirmed"]
    everything = trusting.by(url=f"stomp+tls://{stomp.broker.user}@{there}")
    assert [(r.body, r.properties["class"]) for r in everything.drain(back.name)] == [(b"a", "bytes")]


@on_artemis
def test_a_password_that_is_wrong_from_now_on_is_said_and_nothing_is_lost(
    stomp: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stomp.send(b"a")
    here = by_openwire(stomp)
    with monkeypatch.context() as patch:
        patch.setenv(PASSWORD_VARIABLE, "wr0ng")
        for refused in (
            lambda: OpenWireConnection(here.settings),
            lambda: here.drain(),
            lambda: here.connector.publisher(SendRequest("plan", 10)),
        ):
            with pytest.raises(AccessDenied, match="check user and password") as caught:
                refused()
            assert in_one_line(caught.value, "wr0ng")
    assert [r.body for r in here.drain()] == [b"a"]


@on_artemis
def test_each_right_that_is_missing_is_named_and_nothing_is_lost(
    stomp: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = f"sealed.{stomp.queue}"
    stomp.send(b"a")
    stomp.send(b"b", queue=sealed)
    monkeypatch.setenv("READS", "reads")
    by_reader = stomp.settings.url.replace(f"{stomp.broker.user}@", "reader@")
    reader = by_openwire(stomp).by(url=by_reader, password_env="READS")
    refusals = {
        r"'BROWSE' .*; with openwire_url it needs the permission browse": lambda: reader.drain(sealed),
        r"'SEND' .*; .* needs <security-setting match=\"dlq\.replay\.#\">": lambda: (
            reader.connector.publisher(SendRequest("plan", 10))
        ),
    }
    for said, refused in refusals.items():
        with pytest.raises(AccessDenied, match=said) as caught:
            refused()
        assert in_one_line(caught.value, "reads")
    assert [(r.body, r.properties["class"]) for r in reader.drain()] == [(b"a", "bytes")]
    assert [r.body for r in by_openwire(stomp).drain(sealed)] == [b"b"]
