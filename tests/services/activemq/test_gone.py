"""Letters that vanish while a pull runs are gone, and neither left nor drained."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.brokers.activemq.fixtures import WAYS, Place, on_all

from dlq.archive.store import LocalStore
from dlq.capture.attempt import Tally
from dlq.capture.pull import PullOptions, PullResult, proven_depth, pull
from dlq.connectors.activemq.artemis import Management
from dlq.connectors.activemq.jolokia import Jolokia
from dlq.core.errors import BrokerError
from dlq.core.settings import Source

pytestmark = pytest.mark.activemq
NUMBER = 9_000


def _purge(place: Place, queue: str) -> None:
    if place.broker.artemis:
        Management(place.settings).empty(queue)
    else:
        jolokia = Jolokia(place.settings, artemis=False)
        jolokia._ask({"type": "exec", "mbean": jolokia._mbean(queue), "operation": "purge", "arguments": []})


def _delete(place: Place, queue: str) -> None:
    if place.broker.artemis:
        Management(place.settings).destroy(queue)
    else:
        Jolokia(place.settings, artemis=False).remove_queue(queue)


def _fill_anew(place: Place, queue: str) -> None:
    _delete(place, queue)
    place.send(*[b"other %d" % n for n in range(2 * NUMBER)])


def _drain_and(place: Place, store: Path, end: Callable[[Place, str], None]) -> PullResult:
    source = Source("letters", place.settings.name, queue=place.queue)
    ended: list[str] = []

    def end_once(tally: Tally, _total: int | None) -> None:
        if tally.captured and not ended:
            ended.append(place.queue)
            with suppress(BrokerError):  # the agent may answer late while our window is full
                end(place, place.queue)

    done = pull(
        LocalStore(str(store)),
        place.connector,
        source,
        PullOptions("drain"),
        progress=end_once,
        depth=lambda: proven_depth(place.connector.gauge(source)),
    )
    assert ended
    return done


@on_all
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", [_purge, _delete])
def test_letters_that_are_purged_or_deleted_in_mid_drain_are_gone(
    stomp: Place, tmp_path: Path, way: str, end: Callable[[Place, str], None]
) -> None:
    place = WAYS[way](stomp)
    place.send(*[b"letter %d" % n for n in range(NUMBER)])
    done = _drain_and(place, tmp_path, end)
    assert done.partial == bool(done.gone)  # Artemis purges nothing of what it has delivered
    assert (done.snapshot, done.left) == (NUMBER, 0)
    assert done.gone == NUMBER - done.captured - done.recaptured


@on_all
@pytest.mark.parametrize("way", WAYS)
def test_letters_of_a_queue_that_is_made_again_are_not_taken_for_those_before(
    stomp: Place, tmp_path: Path, way: str
) -> None:
    place = WAYS[way](stomp)
    place.send(*[b"letter %d" % n for n in range(NUMBER)])
    done = _drain_and(place, tmp_path, _fill_anew)
    assert done.partial
    assert done.gone or any("letters of a new queue of its name" in note for note in done.notes)
