"""Letters that vanish while a pull runs are gone, and neither left nor drained."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from proton import Message
from support.brokers.activemq.amqp import connected
from support.brokers.activemq.fixtures import WAYS, Place, on_all, on_artemis, on_newest
from support.wire_builders import drain_and_end

from dlq.capture.pull import PullResult
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.core.errors import BrokerError
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq
NUMBER = 15_000  # more than two segments hold: one grows while the other is written


def _purge(place: Place, queue: str) -> None:
    if place.broker.artemis:
        Management(place.settings).empty(queue)
    else:
        place.execute("purge", queue=queue)


def _delete(place: Place, queue: str) -> None:
    if place.broker.artemis:
        Management(place.settings).destroy(queue)
    else:
        Jolokia(place.settings, artemis=False).remove_queue(queue)


def _fill_anew(place: Place, queue: str) -> None:
    _delete(place, queue)
    place.send(*[b"other %d" % n for n in range(2 * NUMBER)])


def _drain_and(
    place: Place, store: Path, end: Callable[[Place, str], None], pattern: str | None = None
) -> PullResult:
    source = Source("letters", place.settings.name, queue=pattern or place.queue)

    def end_it() -> None:
        with suppress(BrokerError):  # the agent may answer late while our window is full
            end(place, place.queue)

    return drain_and_end(place.connector, source, store, end_it)


@on_all
@pytest.mark.parametrize(("way", "end"), [("stomp", _purge), ("openwire", _delete)])
def test_letters_that_are_purged_or_deleted_in_mid_drain_are_gone(
    stomp: Place, tmp_path: Path, way: str, end: Callable[[Place, str], None]
) -> None:
    place = WAYS[way](stomp)
    place.send(*[b"letter %d" % n for n in range(NUMBER)])
    done = _drain_and(place, tmp_path, end)
    assert done.partial == bool(done.gone)  # Artemis purges nothing of what it has delivered
    assert (done.snapshot, done.left) == (NUMBER, 0)
    assert done.gone == NUMBER - done.captured - done.recaptured


@on_newest
@pytest.mark.parametrize("way", WAYS)
def test_letters_of_a_queue_that_is_made_again_are_not_taken_for_those_before(
    stomp: Place, tmp_path: Path, way: str
) -> None:
    place = WAYS[way](stomp)
    place.send(*[b"letter %d" % n for n in range(NUMBER)])
    done = _drain_and(place, tmp_path, _fill_anew)
    assert done.partial
    said = done.gone or any("letters of a new queue of its name" in note for note in done.notes)
    assert said or done.error  # a pull that ended early concludes nothing


@on_newest
def test_letters_of_a_patterns_queue_that_is_deleted_in_mid_drain_are_gone(
    stomp: Place, tmp_path: Path
) -> None:
    place = replace(stomp, queue=f"{stomp.queue}.DLQ.a")
    place.send(*[b"letter %d" % n for n in range(NUMBER)])
    place.send(b"other", queue=f"{stomp.queue}.DLQ.b")
    done = _drain_and(place, tmp_path, _delete, f"{stomp.queue}.DLQ.*")
    assert done.partial == bool(done.gone or done.left)
    assert done.snapshot == NUMBER + 1
    assert done.gone + done.left == NUMBER + 1 - done.captured - done.recaptured
    # What a connection held that was lost may come back, as far as anybody can tell.
    assert done.left <= 1 or any("reconnected" in note for note in done.notes)


@on_artemis
def test_letters_that_amqp_reads_are_gone_with_their_queue(stomp: Place, tmp_path: Path) -> None:
    place = stomp.by(amqp_url=f"amqp://127.0.0.1:{stomp.broker.amqp}")
    letters = [Message(body=b"%d" % n, durable=True, properties={"n": n}) for n in range(1500)]
    place.send(b"make the queue")
    place.drain()
    with connected(place) as connection:
        sender = connection.create_sender(place.queue)
        for letter in letters:
            sender.send(letter)
    done = _drain_and(place, tmp_path, _purge)
    place.connector.close()
    assert (done.snapshot, done.left) == (1500, 0)
    assert done.gone == 1500 - done.captured - done.recaptured
