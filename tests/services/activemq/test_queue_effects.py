"""What a consumer's coming and going does to a queue of Artemis: refused or said before, and really so."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from proton import Message
from support.brokers.activemq.amqp import connected
from support.brokers.activemq.fixtures import Place, by_openwire, on_artemis
from support.connector_contract import first_letters
from support.waiting import eventually

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Mode
from dlq.core.errors import HarmRefused

pytestmark = [pytest.mark.activemq, on_artemis]
BOTH: Sequence[Mode] = ("copy", "drain")


def make(place: Place, settings: dict[str, object] | None = None, **traits: object) -> None:
    """The place's queue with these properties, and three letters in it."""
    if settings:
        place.manage("addAddressSettings", place.queue, settings)
    place.make_queue(**traits)
    place.send(b"a", b"b", b"c")


def refused(place: Place, mode: Mode) -> str:
    """Why the mode is refused, as the reading and `dlq doctor` say."""
    with pytest.raises(HarmRefused) as raised:
        place.connector.read(place.request(mode))
    harm = place.connector.inspect(place.request().source).harm[mode]
    said = str(raised.value).removesuffix(". Insist with --force")
    assert said in harm
    return said


def depth(place: Place) -> int | None:
    return place.connector.gauge(place.request().source).depth


def test_a_queue_that_is_purged_when_its_consumers_go_is_left_alone(stomp: Place) -> None:
    """Artemis first takes a consumer from the queue, which deletes what lies there, and then what it held."""
    make(stomp, purge_on_no_consumers=True)
    other = stomp.consumer(**{"consumer-window-size": "1"})
    stomp.send(*[bytes(1024)] * 20)
    for mode in BOTH:
        assert "deletes all that is in the queue (purge-on-no-consumers)" in refused(stomp, mode)
    assert depth(stomp) == 20
    reading = stomp.connector.read(stomp.request("drain", force=True, limit=1, careful=True))
    first_letters(reading.batches())
    other.close()
    reading.close()
    held = 5
    eventually(lambda: depth(stomp) in range(held))


@pytest.mark.parametrize(("settings", "said"), [
    ({"expiryDelay": 60_000, "expiryAddress": "Late"}, "1m after they came (expiry-delay), and go to Late"),
    ({"minExpiryDelay": 60_000, "expiryAddress": ""}, "1m after they came (min-expiry-delay), and are lost"),
    ({"expiryDelay": 60_000, "noExpiry": True}, ""),
    ({}, ""),
])  # fmt: skip
def test_letters_that_expire_where_they_lie_are_said_to(
    stomp: Place, settings: dict[str, object], said: str
) -> None:
    make(stomp, settings)
    warnings = stomp.connector.inspect(stomp.request().source).warnings
    found = [one for one in warnings if "expire here" in one]
    assert (len(found), said in "".join(found)) == (bool(said), True)


@pytest.mark.parametrize(("settings", "traits", "modes", "said"), [
    ({"autoDeleteQueues": True}, {"auto_delete": True, "auto_created": True}, BOTH[1:],
     "deletes the queue once it is empty (auto-delete)"),
    ({"autoDeleteQueuesMessageCount": -1}, {"auto_delete": True, "auto_delete_message_count": -1}, BOTH,
     "deletes the queue with all that is in it"),
    ({"maxDeliveryAttempts": 1}, {}, BOTH, "max-delivery-attempts is 1"),
    ({}, {"ring_size": 3}, BOTH[:1], "it is a ring"),
    ({"defaultNonDestructive": True}, {}, BOTH[1:], "removes nothing from it (non-destructive)"),
])  # fmt: skip
def test_a_queue_that_would_lose_or_keep_its_letters_is_left_alone(
    stomp: Place, settings: dict[str, object], traits: dict[str, object], modes: Sequence[Mode], said: str
) -> None:
    make(stomp, settings, **traits)
    assert all(said in refused(stomp, mode) for mode in modes)
    assert depth(stomp) == 3


def send_by_amqp(place: Place) -> None:
    with connected(place) as connection:
        sender = connection.create_sender(place.queue)
        for n in range(3):
            sender.send(Message(body=f"letter {n}", durable=True))


WAYS: dict[str, Callable[[Place], Place]] = {
    "stomp": lambda place: place,
    "openwire": by_openwire,
    "amqp": lambda place: place.by(amqp_url=f"amqp://127.0.0.1:{place.broker.amqp}"),
    "no management": Place.as_reader,
}


@pytest.mark.parametrize(("traits", "way"), [
    *(({"non_destructive": True}, way) for way in WAYS),
    ({"non_destructive": True, "last_value": True}, "stomp"),
    ({"non_destructive": True, "last_value_key": "k"}, "no management"),
])  # fmt: skip
def test_letters_that_a_drain_does_not_remove_are_known_when_they_come_again(
    stomp: Place, tmp_path: Path, traits: dict[str, object], way: str
) -> None:
    """That the queue itself is non-destructive no management shows."""
    make(stomp, **traits)
    if way == "amqp":
        send_by_amqp(stomp)
    place, letters = WAYS[way](stomp), 6 if way == "amqp" else 3
    for captured in (letters, 0):
        source = place.request().source
        found = pull(LocalStore(tmp_path), place.connector, source, PullOptions("drain"))
        assert (found.captured, found.recaptured, found.acknowledged) == (captured, letters - captured, 0)
        assert found.partial
        assert any("may come again, and is known then" in note for note in found.notes)
    assert depth(stomp) == letters


@pytest.mark.parametrize(("traits", "said"), [
    ({"exclusive": True}, "it is exclusive: while we read nobody else is given a letter"),
    ({"max_consumers": 1}, "it allows few consumers (max-consumers)"),
    ({"consumers_before_dispatch": 2}, "it gives nothing before more consumers are there"),
])  # fmt: skip
def test_what_harms_no_letter_is_said_and_done(stomp: Place, traits: dict[str, object], said: str) -> None:
    make(stomp, **traits)
    warnings = stomp.connector.inspect(stomp.request().source).warnings
    assert any(said in warning for warning in warnings)


def test_one_queue_of_a_pattern_that_would_be_harmed_does_not_hold_up_the_others(stomp: Place) -> None:
    replace(stomp, queue=f"{stomp.queue}.a").send(b"a", b"b", b"c")
    stomp.make_queue(f"{stomp.queue}.x", purge_on_no_consumers=True)
    wanted = stomp.request("drain")
    wanted = replace(wanted, source=replace(wanted.source, queue=f"{stomp.queue}.*"))
    found = stomp.connector.inspect(wanted.source)
    assert "drain" not in found.harm
    assert f"{stomp.queue}.x: " in found.leaves_out["drain"]
    reading = stomp.connector.read(wanted)
    taken = sum(len(batch.records) for batch in reading.batches())
    reading.close()
    assert (taken, reading.complete) == (3, False)
    assert any(note.startswith(f"not read: {stomp.queue}.x: ") for note in reading.notes)
