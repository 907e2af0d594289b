"""Pulls over the embedded broker: nothing lost, nothing twice, whatever fails in between."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any

import pytest
from support.waiting import PATIENCE

from dlq.archive import manifests, segments
from dlq.archive.segments import remove_uncommitted
from dlq.archive.store import LocalStore
from dlq.capture import attempt
from dlq.capture.pull import PullInterrupted, PullOptions, PullResult, pull
from dlq.connectors.base import Batch, ReadRequest, Skipped
from dlq.connectors.memory import MemoryBroker, MemoryConnector, MemoryReading, broker_at
from dlq.core import patience
from dlq.core.errors import ArchiveError, Busy, ConnectionLost, PoisonMessage, Unreachable
from dlq.core.settings import Broker, Source

SOURCE = Source("orders", "shop", queue="orders.dlq")


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Broker:
    return Broker("shop", "memory", f"memory:{request.node.nodeid}")


@pytest.fixture
def broker(settings: Broker) -> MemoryBroker:
    broker = broker_at(settings.url)
    broker.declare("orders.dlq")
    return broker


@pytest.fixture
def shop(settings: Broker, broker: MemoryBroker) -> MemoryConnector:
    return MemoryConnector(settings)


def letter(body: str) -> dict[str, Any]:
    return {"broker_kind": "rabbitmq", "body_text": body}


def fill(broker: MemoryBroker, count: int) -> None:
    broker.put("orders.dlq", *(letter(str(n)) for n in range(count)))


def ids(store: LocalStore) -> list[str]:
    return [i for m in manifests.list_committed(store) for i in segments.record_ids(store, m).to_pylist()]


def take(store: LocalStore, shop: Any, mode: Any = "drain", **options: Any) -> PullResult:
    return pull(store, shop, SOURCE, PullOptions(mode, **options))


def check_all_are_archived_once(store: LocalStore, broker: MemoryBroker, count: int) -> None:
    """And none is left in the queue."""
    assert len(ids(store)) == len(set(ids(store))) == count
    assert broker.depth("orders.dlq") == 0


def test_a_drain_empties_the_queue(store: LocalStore, shop: MemoryConnector, broker: MemoryBroker) -> None:
    fill(broker, 50)
    result = take(store, shop)
    assert (result.snapshot, result.captured, result.acknowledged, result.left) == (50, 50, 50, 0)
    check_all_are_archived_once(store, broker, 50)
    assert all(manifest.settled for manifest in manifests.list_committed(store))


@pytest.mark.parametrize("mode", ["drain", "copy"])
def test_where_the_checkpoint_acknowledges_a_manifest_is_settled_as_it_is_written(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(MemoryReading, "settles_at_once", True)
    written: list[str] = []
    put = LocalStore.put
    monkeypatch.setattr(
        LocalStore, "put", lambda self, name, data: (written.append(name), put(self, name, data))[1]
    )
    broker.put("orders.dlq", letter("one"))
    assert take(store, shop, mode).captured == 1
    assert len([name for name in written if name.startswith("manifests/")]) == 1
    assert [manifest.settled for manifest in manifests.list_committed(store)] == [mode == "drain"]


def test_while_a_segment_is_written_the_next_one_grows(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 10)
    monkeypatch.setattr("dlq.connectors.memory.MOST_ROWS", 10)
    is_read, batches, commit = Event(), MemoryReading.batches, attempt.commit

    def read_to_the_end(reading: MemoryReading) -> Iterator[Batch]:
        yield from batches(reading)
        is_read.set()

    def commit_when_all_is_read(*arguments: Any) -> manifests.Manifest:
        assert is_read.wait(PATIENCE)
        return commit(*arguments)

    monkeypatch.setattr(MemoryReading, "batches", read_to_the_end)
    monkeypatch.setattr(attempt, "commit", commit_when_all_is_read)
    fill(broker, 100)
    assert take(store, shop).acknowledged == 100
    assert [manifest.rows for manifest in manifests.list_committed(store)] == [10, 90]


def test_a_drain_after_a_copy(store: LocalStore, shop: MemoryConnector, broker: MemoryBroker) -> None:
    """Byte-identical letters are distinct records."""
    broker.put("orders.dlq", *[letter("same")] * 3, letter("other"))
    assert take(store, shop, "copy").captured == 4
    assert take(store, shop, "copy").recaptured == 4
    result = take(store, shop)
    assert (result.captured, result.recaptured, result.acknowledged) == (0, 4, 4)
    check_all_are_archived_once(store, broker, 4)
    broker.put("orders.dlq", letter("same"))
    take(store, shop)
    check_all_are_archived_once(store, broker, 5)


def test_a_drain_in_parts_after_a_copy_settles_letter_by_letter(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker
) -> None:
    broker.put("orders.dlq", *[letter("same")] * 3)
    take(store, shop, "copy")
    take(store, shop, limit=2)
    broker.put("orders.dlq", letter("same"))
    result = take(store, shop)
    assert (result.captured, result.recaptured) == (1, 1)
    assert len(set(ids(store))) == 4


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RECONNECT", 0.0)


@pytest.mark.usefixtures("hasty")
def test_a_lost_connection_is_tried_again_and_doubles_nothing(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 10)
    broker.put("orders.dlq", *[letter(str(n % 7)) for n in range(350)])
    broker.faults.cut_reading_after = 200
    result = take(store, shop)
    assert (result.captured, result.left) == (350, 0)
    check_all_are_archived_once(store, broker, 350)


class Odd(MemoryConnector):
    """A queue whose batches are made otherwise: of those that it gives, and of what was asked for."""

    def __init__(
        self, settings: Broker, make: Callable[[Iterator[Batch], ReadRequest], Iterator[Batch]]
    ) -> None:
        super().__init__(settings)
        self._make = make

    def read(self, request: ReadRequest) -> MemoryReading:
        reading = super().read(replace(request, batch_rows=1))
        scan = reading.batches
        reading.batches = lambda: self._make(scan(), request)  # type: ignore[method-assign]
        return reading


def poisoned(batches: Iterator[Batch], request: ReadRequest) -> Iterator[Batch]:
    """In another order each time: whatever is not careful meets the poison."""
    yield from batches
    if not request.careful:
        raise PoisonMessage("one of them ends the connection")


def unending(_batches: Iterator[Batch], _request: ReadRequest) -> Iterator[Batch]:
    """For ever what must stay in it, under long names."""
    skipped = [Skipped("x" * 2000, "it cannot be read")] * 1001
    return (Batch((), 0, skipped=skipped) for _ in count())


def cut(batches: Iterator[Batch], _request: ReadRequest) -> Iterator[Batch]:
    """The connection ends instead of giving one letter."""
    for batch in batches:
        if any(record.body == b"bad" for record in batch.records):
            raise ConnectionLost("501 FRAME_ERROR")
        yield batch


@pytest.mark.usefixtures("hasty")
def test_a_poison_is_read_alone_at_once(store: LocalStore, settings: Broker, broker: MemoryBroker) -> None:
    fill(broker, 9)
    result = take(store, Odd(settings, poisoned))
    assert (result.captured, result.left, result.error) == (9, 0, None)
    check_all_are_archived_once(store, broker, 9)


def test_letters_that_stay_without_end_are_counted_and_the_first_are_named_until_the_time_is_over(
    store: LocalStore, settings: Broker, broker: MemoryBroker
) -> None:
    result = take(store, Odd(settings, unending), max_seconds=0.2)
    assert result.partial
    assert result.skipped == result.left > 1000
    assert (len(result.left_letters), max(map(len, result.left_letters))) == (1000, 500)


@pytest.mark.usefixtures("hasty")
def test_what_ends_two_readings_is_poison(store: LocalStore, settings: Broker, broker: MemoryBroker) -> None:
    broker.put("orders.dlq", letter("a"), letter("b"), letter("bad"), letter("c"))
    result = take(store, Odd(settings, cut))
    assert (result.captured, result.acknowledged, result.left, result.partial) == (2, 2, 2, True)
    assert isinstance(result.error, PoisonMessage)
    assert "501 FRAME_ERROR; it ends each reading at one letter" in str(result.error)


class Away:
    """A broker that is lost in the middle, and cannot be reached for some seconds then."""

    def __init__(
        self, shop: MemoryConnector, broker: MemoryBroker, refusals: int, begun: bool = False
    ) -> None:
        self._shop, self._left, self._begun = shop, refusals, begun
        broker.faults.cut_reading_after = 200

    def read(self, request: ReadRequest) -> MemoryReading:
        if self._begun and self._left:
            self._left -= 1
            raise Unreachable("no connection")
        self._begun = True
        return self._shop.read(request)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("refusals", "restart", "fails"), [(5, 1000.0, False), (10**6, 0.0, True)])
def test_a_broker_that_was_lost_is_waited_for_until_another_node_takes_over(
    store: LocalStore,
    shop: MemoryConnector,
    broker: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
    restart: float,
    fails: bool,
) -> None:
    monkeypatch.setattr(patience, "RESTART", restart)
    fill(broker, 350)
    result = take(store, Away(shop, broker, refusals))
    assert (isinstance(result.error, Unreachable), result.partial) == (fails, fails)
    assert fails == (result.captured < 350)
    assert take(store, shop).error is None
    check_all_are_archived_once(store, broker, 350)


def test_who_was_never_reached(store: LocalStore, shop: MemoryConnector, broker: MemoryBroker) -> None:
    with pytest.raises(Unreachable):
        take(store, Away(shop, broker, 1, begun=True))


@pytest.mark.usefixtures("hasty")
def test_a_pull_is_partial_when_a_lost_connection_leaves_letters_that_do_not_come_again_yet(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker
) -> None:
    """As a quorum queue of a cluster: its new leader has not taken back what the dead consumer held."""
    fill(broker, 350)
    broker.declare("empty")

    class Forgetful(Away):
        def read(self, request: ReadRequest) -> MemoryReading:
            source = replace(request.source, queue="empty") if self._begun else request.source
            return super().read(replace(request, source=source))

    result = take(store, Forgetful(shop, broker, 0))
    assert (result.error, result.partial, result.left) == (None, True, 350 - result.captured)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("captured_before", [False, True])
def test_a_pull_is_partial_when_other_letters_take_the_place_of_those_that_a_lost_connection_held(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, captured_before: bool
) -> None:
    fill(broker, 350)
    if captured_before:
        pull(store, shop, SOURCE, PullOptions("copy"))

    class MadeAgain(Away):
        def read(self, request: ReadRequest) -> MemoryReading:
            if self._begun:
                broker.sql("DELETE FROM letters")
                broker.put("orders.dlq", *(letter(f"other {n}") for n in range(400)))
            return super().read(request)

    result = take(store, MadeAgain(shop, broker, 0))
    assert (result.error, result.partial, result.left) == (None, True, 0)
    assert any("did not come again" in note for note in result.notes)


def fill_up(monkeypatch: pytest.MonkeyPatch, folder: str, at: int = 1) -> None:
    """The disk is full for one file of a folder, and all others of it; what comes after finds room."""
    whole, written = LocalStore.put, count(1)

    def full(self: LocalStore, name: str, data: Any) -> None:
        if name.startswith(folder) and next(written) >= at:
            raise ArchiveError("no space left on device")
        whole(self, name, data)

    monkeypatch.setattr(LocalStore, "put", full)


@pytest.mark.parametrize("failing", ["segments/", "manifests/"])
def test_a_full_disk_loses_nothing(
    store: LocalStore,
    shop: MemoryConnector,
    broker: MemoryBroker,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
) -> None:
    fill(broker, 20)
    with monkeypatch.context() as patched:
        fill_up(patched, failing)
        assert isinstance(take(store, shop).error, ArchiveError)
    assert broker.depth("orders.dlq") == 20
    take(store, shop)
    check_all_are_archived_once(store, broker, 20)
    assert len(store.list("segments/")) == 1


def test_a_full_disk_says_what_is_in_the_archive_and_gone_from_the_queue(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 60)
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 20)
    monkeypatch.setattr("dlq.connectors.memory.MOST_ROWS", 20)
    with monkeypatch.context() as patched:
        fill_up(patched, "segments/", at=2)
        result = take(store, shop)
    assert isinstance(result.error, ArchiveError)
    assert (result.captured, result.segments) == (len(ids(store)), len(store.list("segments/")))
    assert result.acknowledged == 60 - broker.depth("orders.dlq") == 20
    take(store, shop)
    check_all_are_archived_once(store, broker, 60)


def test_who_is_waited_for_is_the_archive_while_it_is_read_or_written_and_else_the_broker(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put("orders.dlq", letter("a"))
    awaited, seen = [""], {}

    def noting(name: str, whole: Any) -> Any:
        def noted(*words: Any) -> Any:
            seen[name] = awaited[-1]
            return whole(*words)

        return noted

    monkeypatch.setattr(MemoryConnector, "read", noting("read", MemoryConnector.read))
    monkeypatch.setattr("dlq.capture.pull.remove_uncommitted", noting("mended", remove_uncommitted))
    monkeypatch.setattr(segments, "record_ids", noting("known", segments.record_ids))
    monkeypatch.setattr(MemoryReading, "settled_position", noting("settled", MemoryReading.settled_position))
    take(store, shop, "copy")
    pull(store, shop, SOURCE, PullOptions("drain"), awaits=awaited.append)
    assert seen == {"mended": "archive", "read": "broker", "known": "archive", "settled": "broker"}
    assert (awaited[1], awaited[-1]) == ("archive", "broker")


def test_pulls_that_begin_at_once_have_names_of_their_own() -> None:
    assert len({manifests.new_pull_id() for _ in range(2_000)}) == 2_000


def test_an_interrupted_pull_tells_it(store: LocalStore, shop: MemoryConnector, broker: MemoryBroker) -> None:
    broker.put("orders.dlq", letter("a"))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(PullInterrupted) as interrupted:
        pull(store, shop, SOURCE, PullOptions("drain"), interrupt)
    assert interrupted.value.result.snapshot == 1
    assert interrupted.value.result.captured == len(ids(store))


def test_a_crash_between_manifest_and_acknowledgement_doubles_nothing(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put("orders.dlq", *[letter("same")] * 20)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dlq.connectors.memory.MemoryReading.acknowledge", crash)
    with pytest.raises(KeyboardInterrupt):
        take(store, shop)
    monkeypatch.undo()
    result = take(store, shop)
    assert (result.captured, result.recaptured) == (0, 20)
    assert len(set(ids(store))) == 20


def test_what_the_broker_has_not_answered_may_come_again(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.put("orders.dlq", letter("a"))
    monkeypatch.setattr(MemoryReading, "settled_position", lambda _reading: 0)
    assert take(store, shop).acknowledged == 0
    assert [manifest.settled for manifest in manifests.list_committed(store)] == [False]
    monkeypatch.undo()
    broker.put("orders.dlq", letter("a"))
    again = take(store, shop)
    assert (again.captured, again.recaptured, again.acknowledged) == (0, 1, 1)


def test_a_source_is_locked_while_it_is_pulled(store: LocalStore, shop: MemoryConnector) -> None:
    with store.lock("source-orders"), pytest.raises(Busy, match="pid"):
        take(store, shop)


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_damaged_segment_is_named_and_the_letters_stay_in_the_queue(
    store: LocalStore, shop: MemoryConnector, broker: MemoryBroker, harm: str
) -> None:
    broker.put("orders.dlq", letter("a"))
    take(store, shop)
    [manifest] = manifests.list_committed(store)
    if harm == "gone":
        store.delete(manifest.segment)
    else:
        store.put(manifest.segment, b"no parquet")
    broker.put("orders.dlq", letter("b"))
    result = take(store, shop)
    assert isinstance(result.error, ArchiveError)
    assert f"cannot read {manifest.segment} in the archive" in str(result.error)
    assert broker.depth("orders.dlq") == 1
