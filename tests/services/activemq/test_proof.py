"""What a marker that is missing proves: something only where it would still be there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from support.brokers.activemq.broker import CLASSIC, ActiveMq
from support.brokers.activemq.fixtures import WAYS, Place, on_all, on_artemis
from support.brokers.activemq.sending import outgoing, place_on, run_of
from support.sending_contract import shifted_clock
from support.waiting import eventually

from dlq.connectors.activemq.look import statistics
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.activemq.stomp.link import Link
from dlq.connectors.activemq.stomp.read import ack_id
from dlq.connectors.base import Checkpoint, Outgoing, Search, Target
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience

pytestmark = pytest.mark.activemq
LETTERS = 500

by_both_ways = pytest.mark.parametrize("way", WAYS)


def sent_of(place: Place) -> int:
    """So many of them go, in three transactions."""
    return 450 if place.broker.artemis else 250


def sent_in_part(place: Place) -> tuple[list[Outgoing], Checkpoint]:
    """Letters of which the first went, in three transactions, and what the run left before."""
    place.send(*[b"%d" % n for n in range(LETTERS)])
    letters = outgoing(place.drain(), Target("queue", f"{place.queue}.back"))
    return letters, run_of(place, place.queue, letters[: sent_of(place)])[1]


def told(place: Place, letters: list[Outgoing], before: Checkpoint) -> tuple[set[str], set[str], list[str]]:
    """What is found of those that went, what of the others, and why no more."""
    proof = place.connector.find(Search(place.queue, letters, 0, before))
    sent = sent_of(place)
    went, others = range(sent), range(sent, LETTERS)
    return {proof.shown[n] for n in went}, {proof.shown[n] for n in others}, list(proof.doubts)


def markers(place: Place) -> str:
    """Their queue."""
    return f"dlq.replay.{place.queue}"


@on_all
@by_both_ways
def test_what_no_marker_names_was_not_sent_as_often_as_it_is_asked(stomp: Place, way: str) -> None:
    place = WAYS[way](stomp)
    letters, before = sent_in_part(place)
    assert [told(place, letters, before) for _ in range(3)] == [({"sent"}, {"not_sent"}, [])] * 3


@on_all
@by_both_ways
def test_markers_that_were_purged_prove_nothing(stomp: Place, way: str) -> None:
    place = WAYS[way](stomp)
    letters, before = sent_in_part(place)
    stomp.drain(markers(place))
    sent, others, why = told(place, letters, before)
    assert (sent, others) == ({"unknown"}, {"unknown"})
    assert why == [
        f"proof that was left in {markers(place)} before the first letter is not there any more: purged, "
        "expired or consumed"
    ]


@on_all
@pytest.mark.parametrize(("is_taken", "said"), [
    (lambda n, _body: n == 4, "markers are missing from the middle of {queue}: consumed or removed"),
    (lambda _n, body: b"/3 " in body, ""),
    (lambda _n, body: body.startswith(b"#") and b"/3" in body.partition(b" ")[0], "not all were ours"),
], ids=["of the middle", "the last", "the last with its link"])  # fmt: skip
def test_a_marker_that_was_taken_is_noticed(
    stomp: Place, is_taken: Callable[[int, bytes], bool], said: str
) -> None:
    """An anchor lies before them, then a link and a marker of each transaction. A last one with its link is
    missed where the broker counts."""
    letters, before = sent_in_part(stomp)
    assert told(stomp, letters, before)[1] == {"not_sent"}
    with holding(stomp) as (link, frames):
        taken = [frame for n, frame in enumerate(frames) if is_taken(n, frame.body)]
        for frame in taken:
            link.send(b"ACK\nid:%b\n\n\0" % ack_id(frame.head))
        link.ping()
    assert taken
    assert told(stomp, letters, before)[1] == {"unknown"}
    # The broker shows in its own time what was held.
    expected = said.format(queue=markers(stomp))

    def noticed() -> bool:
        sent, others, why = told(stomp, letters, before)
        assert others == {"unknown"}
        return any(expected in one for one in why) and (said == "not all were ours" or "unknown" in sent)

    eventually(noticed)


@contextmanager
def holding(place: Place) -> Iterator[tuple[Link, list[Frame]]]:
    """A connection that holds all markers unacknowledged."""
    link = place.consumer(markers(place))
    frames: list[Frame] = []
    eventually(lambda: frames.extend(link.receive(1.0)) or any(b"/3" in one.body for one in frames))
    link.ping()  # the last message is certain when something follows it
    while some := link.receive(1.0):
        frames += some
    yield link, frames
    link.close()


@on_artemis
def test_while_another_consumer_holds_markers_nothing_is_proven(stomp: Place) -> None:
    """Artemis gives to both in turn; Classic gives all to the one that is exclusive."""
    letters, before = sent_in_part(stomp)
    with pytest.MonkeyPatch.context() as patch, holding(stomp):
        patch.setattr(patience, "CAUGHT_UP", 1.0)
        sent, others, why = told(stomp, letters, before)
    assert (sent, others) == ({"unknown"}, {"unknown"})
    assert why == [
        f"another consumer takes from {markers(stomp)}, or has just done so; ask again when it is gone"
    ]

    def is_whole_again() -> bool:
        with suppress(ConnectionLost):  # over a message that is just given back
            return told(stomp, letters, before) == ({"sent"}, {"not_sent"}, [])
        return False

    eventually(is_whole_again)


def settings_for(place: Place, **settings: object) -> None:
    """Address settings of the markers of this place."""
    place.manage("addAddressSettings", markers(place), settings)


@on_artemis
@by_both_ways
def test_where_markers_expire_only_an_older_one_that_lives_proves_anything(stomp: Place, way: str) -> None:
    place = WAYS[way](stomp)
    letters, before = sent_in_part(place)
    settings_for(place, expiryDelay=3_600_000)
    sent, others, why = told(place, letters, before)
    assert (sent, others) == ({"sent", "unknown"}, {"unknown"}), "what lies in its queue has arrived"
    assert "gives what is sent to" in why[-1]


@on_artemis
def test_markers_that_have_lived_long_enough_prove_what_they_prove(stomp: Place) -> None:
    settings_for(stomp, expiryDelay=3_600_000)
    letters, before = sent_in_part(stomp)
    assert told(stomp, letters, before) == ({"sent"}, {"not_sent"}, [])


@on_artemis
def test_where_a_full_address_drops_markers_nothing_is_proven(stomp: Place) -> None:
    letters, before = sent_in_part(stomp)
    settings_for(stomp, addressFullMessagePolicy="DROP")
    sent, others, why = told(stomp, letters, before)
    assert (sent, others) == ({"sent", "unknown"}, {"unknown"}), "what lies in its queue has arrived"
    assert why[-1] == f"{markers(stomp)} drops messages when it is full (address-full-policy DROP)"


def test_a_classic_broker_that_gives_every_message_a_time_to_live_proves_what_is_younger_than_that() -> None:
    with ActiveMq(CLASSIC[-1], "ttl=3600000") as broker:
        place = place_on(broker)
        letters, before = sent_in_part(place)
        assert told(place, letters, before) == ({"sent"}, {"not_sent"}, [])
        with holding(place) as (_, frames):
            assert all(b"\nexpires:0\n" not in b"\n" + frame.head + b"\n" for frame in frames)


def test_a_question_that_no_plugin_answers_expires_by_the_brokers_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ActiveMq(CLASSIC[-1]) as broker:
        place = place_on(broker)
        with shifted_clock(monkeypatch, 7):
            assert statistics.facts(place.settings, "orders") is None
        asked = "ActiveMQ.Statistics.Destination.orders"
        place.send(b"so that the queue is there", queue=asked)
        frames = [head for head in place.pull("copy", asked)[0] if head.expires_at is not None]
        assert all(record.expires_at - record.published_at <= 3_100_000 for record in frames)  # type: ignore[operator]
