"""Pulls over the embedded broker: nothing lost, nothing twice, whatever fails in between."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.brokers import toy_log
from support.rows import each_row

from dlq.archive import manifests, segments
from dlq.archive.segments import remove_uncommitted
from dlq.archive.storage.store import LocalStore
from dlq.capture import attempt
from dlq.capture.pull import PullInterrupted, PullOptions, PullResult, proven_depth, pull
from dlq.connectors import memory
from dlq.connectors.base import Batch, Gauge, ReadRequest, Skipped
from dlq.connectors.memory import MemoryConnector, MemoryReading, broker_at
from dlq.core.errors import ArchiveError, Busy, ConnectionLost, PoisonMessage, Unreachable
from dlq.core.runtime import patience
from dlq.core.settings import Broker, Source

Patch = pytest.MonkeyPatch
SOURCE = Source("orders", "shop", queue="orders.dlq")


class Shop:
    """A queue, and the archive that it is pulled into."""

    def __init__(self, store: LocalStore, url: str) -> None:
        self.store, self.settings, self.broker = store, Broker("shop", "memory", url), broker_at(url)
        self.broker.declare("orders.dlq")
        self.connector: Any = MemoryConnector(self.settings)

    def put(self, *bodies: object) -> None:
        self.broker.put(
            "orders.dlq", *({"broker_kind": "rabbitmq", "body_text": f"{body}"} for body in bodies)
        )

    def take(self, mode: Any = "drain", connector: Any = None, **options: Any) -> PullResult:
        return pull(self.store, connector or self.connector, SOURCE, PullOptions(mode, **options))

    def committed(self) -> list[manifests.Manifest]:
        return list(manifests.list_committed(self.store))

    def ids(self) -> list[str]:
        return [i for m in self.committed() for i in segments.record_ids(self.store, m).to_pylist()]

    def depth(self) -> int:
        return self.broker.depth("orders.dlq")

    def check_all_are_archived_once(self, count: int) -> None:
        """And none is left in the queue."""
        assert (len(self.ids()), len(set(self.ids())), self.depth()) == (count, count, 0)


@pytest.fixture
def shop(store: LocalStore, request: pytest.FixtureRequest, monkeypatch: Patch) -> Shop:
    monkeypatch.setattr(patience, "RECONNECT", 0.0)
    return Shop(store, f"memory:{request.node.nodeid}")


def test_a_drain_empties_the_queue(shop: Shop) -> None:
    shop.put(*range(50))
    result = shop.take()
    assert (result.snapshot, result.captured, result.acknowledged, result.left) == (50, 50, 50, 0)
    shop.check_all_are_archived_once(50)
    assert all(manifest.settled for manifest in shop.committed())


@each_row("gauge, depth", [
    (Gauge(7, consumers=0), 7),
    (Gauge(0, consumers=0), 0),
    (Gauge(0, consumers=1), None),  # it may hold them all
    (Gauge(0), None),
    (Gauge(None, consumers=0), None),
])  # fmt: skip
def test_a_depth_says_what_is_there_only_where_nobody_consumes(gauge: Gauge, depth: int | None) -> None:
    assert proven_depth(gauge) == depth


def test_where_the_checkpoint_acknowledges_a_manifest_of_a_drain_is_settled(
    shop: Shop, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(MemoryReading, "settles_at_once", True)
    shop.put("one")
    shop.take("copy")
    assert [manifest.settled for manifest in shop.committed()] == [False]
    shop.put("two")
    shop.take()
    assert all(manifest.settled for manifest in shop.committed())


def test_a_drain_after_a_copy(shop: Shop) -> None:
    """Byte-identical letters are distinct records."""
    shop.put("same", "same", "same", "other")
    assert shop.take("copy").captured == 4
    assert shop.take("copy").recaptured == 4
    result = shop.take()
    assert (result.captured, result.recaptured, result.acknowledged) == (0, 4, 4)
    shop.put("same")
    shop.take()
    shop.check_all_are_archived_once(5)


def test_a_drain_in_parts_after_a_copy_settles_letter_by_letter(shop: Shop) -> None:
    shop.put("same", "same", "same")
    shop.take("copy")
    shop.take(limit=2)
    shop.put("same")
    shop.broker.sql("UPDATE delivered SET number = number + 1")  # to another consumer, who gave it back
    result = shop.take()
    assert (result.captured, result.recaptured) == (1, 1)
    assert len(set(shop.ids())) == 4


class Odd(MemoryConnector):
    """A queue whose batches are made otherwise: of those that it gives, and of what was asked for."""

    def __init__(self, shop: Shop, make: Callable[[Iterator[Batch], ReadRequest], Iterator[Batch]]) -> None:
        super().__init__(shop.settings)
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


def test_a_poison_is_read_alone_at_once(shop: Shop) -> None:
    shop.put(*range(9))
    result = shop.take(connector=Odd(shop, poisoned))
    assert (result.captured, result.left, result.error) == (9, 0, None)
    shop.check_all_are_archived_once(9)


def test_letters_that_stay_without_end_are_counted_and_the_first_are_named_until_the_time_is_over(
    shop: Shop,
) -> None:
    result = shop.take(connector=Odd(shop, unending), max_seconds=0.2)
    assert result.partial
    assert result.skipped == result.left > 1000
    assert (len(result.left_letters), max(map(len, result.left_letters))) == (1000, 500)


def test_what_ends_two_readings_is_poison(shop: Shop) -> None:
    shop.put("a", "b", "bad", "c")
    result = shop.take(connector=Odd(shop, cut))
    assert (result.captured, result.acknowledged, result.left, result.partial) == (2, 2, 2, True)
    assert isinstance(result.error, PoisonMessage)
    assert "501 FRAME_ERROR; it ends each reading at one letter" in str(result.error)


class Away:
    """A broker that is lost in the middle, and cannot be reached for some seconds then; `again` says which
    queue is read instead once it is back."""

    def __init__(
        self, shop: Shop, refusals: int = 0, again: Callable[[], str] | None = None, begun: bool = False
    ) -> None:
        self._shop, self._left, self._again, self._begun = shop, refusals, again, begun
        shop.broker.faults.cut_reading_after = 200

    def read(self, request: ReadRequest) -> Any:
        if self._begun and self._left:
            self._left -= 1
            raise Unreachable("no connection")
        if self._begun and self._again:
            request = replace(request, source=replace(request.source, queue=self._again()))
        self._begun = True
        return self._shop.connector.read(request)


@pytest.mark.parametrize("rows", [2, 100])
@pytest.mark.parametrize(
    ("refusals", "restart", "fails"), [(0, 1000.0, False), (5, 1000.0, False), (10**6, 0.0, True)]
)
def test_a_broker_that_was_lost_is_waited_for_and_nothing_is_doubled(
    shop: Shop, monkeypatch: Patch, refusals: int, restart: float, fails: bool, rows: int
) -> None:
    """As another node may take over. A pull is partial, too, where the first letters are acknowledged before:
    whether the broker heard that, nobody knows."""
    monkeypatch.setattr(patience, "RESTART", restart)
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 10)
    monkeypatch.setattr(memory, "MOST_ROWS", rows)
    shop.put(*(n % 7 for n in range(350)))
    result = shop.take(connector=Away(shop, refusals))
    assert isinstance(result.error, Unreachable) == fails
    assert result.partial or not fails
    assert fails == (result.captured < 350)
    assert shop.take().error is None
    shop.check_all_are_archived_once(350)


def test_who_was_never_reached(shop: Shop) -> None:
    with pytest.raises(Unreachable):
        shop.take(connector=Away(shop, 1, begun=True))


def test_a_pull_is_partial_when_a_lost_connection_leaves_letters_that_do_not_come_again_yet(
    shop: Shop,
) -> None:
    """As a quorum queue of a cluster: its new leader has not taken back what the dead consumer held."""
    shop.put(*range(350))
    shop.broker.declare("empty")
    result = shop.take(connector=Away(shop, again=lambda: "empty"))
    assert (result.error, result.partial, result.left) == (None, True, 350 - result.captured)


@pytest.mark.parametrize("captured_before", [False, True])
def test_a_pull_is_partial_when_other_letters_take_the_place_of_those_that_a_lost_connection_held(
    shop: Shop, captured_before: bool
) -> None:
    shop.put(*range(350))
    if captured_before:
        shop.take("copy")

    def made_again() -> str:
        shop.broker.sql("DELETE FROM letters")
        shop.put(*(f"other {n}" for n in range(400)))
        return "orders.dlq"

    result = shop.take(connector=Away(shop, again=made_again))
    assert (result.error, result.partial, result.left) == (None, True, 0)
    assert any("did not come again" in note for note in result.notes)


def fill_up(monkeypatch: Patch, folder: str, at: int = 1) -> None:
    """The disk is full for one file of a folder, and all others of it; what comes after finds room."""
    whole, written = LocalStore.put, count(1)

    def full(self: LocalStore, name: str, data: Any) -> None:
        if name.startswith(folder) and next(written) >= at:
            raise ArchiveError("no space left on device")
        whole(self, name, data)

    monkeypatch.setattr(LocalStore, "put", full)


@pytest.mark.parametrize("failing", ["segments/", "manifests/"])
def test_a_full_disk_loses_nothing(shop: Shop, monkeypatch: Patch, failing: str) -> None:
    shop.put(*range(20))
    with monkeypatch.context() as patched:
        fill_up(patched, failing)
        assert isinstance(shop.take().error, ArchiveError)
    assert shop.depth() == 20
    shop.take()
    shop.check_all_are_archived_once(20)
    assert len(shop.store.list("segments/")) == 1


def test_a_segment_whose_manifest_the_store_does_not_list_is_not_what_a_crash_left(
    shop: Shop, monkeypatch: Patch
) -> None:
    shop.put("a")
    shop.take()
    listed = LocalStore.list
    without = lambda store, at: [] if at == "manifests/" else listed(store, at)  # noqa: E731
    monkeypatch.setattr(LocalStore, "list", without)
    assert remove_uncommitted(shop.store, "orders") == 0
    assert len(shop.store.list("segments/")) == 1


def test_a_manifest_that_comes_when_its_segment_was_removed_counts_nothing(shop: Shop) -> None:
    """An object store may take what a pull wrote that has lost its lock by then."""
    shop.store.filesystem = object()
    shop.put("a")
    shop.take("copy")
    [name] = shop.store.list("manifests/")
    late = shop.store.get(name)
    shop.store.delete(name)
    assert remove_uncommitted(shop.store, "orders") == 1
    shop.store.put(name, late)
    assert list(manifests.list_committed(shop.store)) == []
    result = shop.take()
    assert (result.error, result.captured, result.acknowledged) == (None, 1, 1)
    assert remove_uncommitted(shop.store, "orders") == 0


def test_no_segment_is_removed_where_more_manifests_are_missing_than_a_crash_leaves(shop: Shop) -> None:
    for body in range(4):
        shop.put(body)
        shop.take()
    for name in shop.store.list("manifests/"):
        shop.store.delete(name)
    with pytest.raises(ArchiveError, match=r"4 segments in segments/source=orders have no manifest.*restore"):
        shop.take()
    assert len(shop.store.list("segments/")) == 4


def test_a_full_disk_says_what_is_in_the_archive_and_gone_from_the_queue(
    shop: Shop, monkeypatch: Patch
) -> None:
    shop.put(*range(60))
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 20)
    monkeypatch.setattr(memory, "MOST_ROWS", 20)
    with monkeypatch.context() as patched:
        fill_up(patched, "segments/", at=2)
        result = shop.take()
    assert isinstance(result.error, ArchiveError)
    assert (result.captured, result.segments) == (len(shop.ids()), len(shop.store.list("segments/")))
    assert result.acknowledged == 60 - shop.depth() == 20
    shop.take()
    shop.check_all_are_archived_once(60)


class Log:
    """A log of so many letters, read one by one, and the archive that it is pulled into."""

    def __init__(self, store: LocalStore, folder: Path, letters: int) -> None:
        (folder / "orders.dlq.log").write_text('{"body_text": "a"}\n' * letters)
        self._store = store
        self._connector = toy_log.ToyLogConnector(Broker("shop", "toylog", f"toylog://{folder}"))

    def drain(self, limit: int | None = None) -> PullResult:
        source = Source("orders", "shop", topic="orders.dlq")
        return pull(self._store, self._connector, source, PullOptions("drain", limit=limit))


def one_by_one(self: Any, scan: Any = toy_log.ToyReading.scan) -> Iterator[Batch]:
    self._request = replace(self._request, batch_rows=1)
    yield from scan(self)


def test_behind_a_segment_that_could_not_be_written_no_checkpoint_counts(
    store: LocalStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The writing fails once, when the rest waits for its turn already."""
    log, put, all_read, failing = Log(store, tmp_path, 3), LocalStore.put, Event(), ["segments/"]

    def read_all(self: Any) -> Iterator[Batch]:
        yield from one_by_one(self)
        all_read.set()

    def fail_once(self: LocalStore, name: str, data: Any) -> None:
        if failing and name.startswith(failing[0]):
            all_read.wait()
            raise ArchiveError(f"no space left for {failing.pop()}")
        put(self, name, data)

    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 1)
    monkeypatch.setattr(toy_log.ToyReading, "scan", read_all)
    monkeypatch.setattr(LocalStore, "put", fail_once)
    results = [log.drain() for _ in range(2)]
    assert [(isinstance(one.error, ArchiveError), one.captured) for one in results] == [(True, 0), (False, 3)]


def test_a_segment_is_a_file_and_a_checkpoint_alone_is_none(store: LocalStore, tmp_path: Path) -> None:
    log = Log(store, tmp_path, 3)
    assert [(one.captured, one.segments) for one in (log.drain(), log.drain())] == [(3, 1), (0, 0)]
    assert len(store.list("segments/")) == 1


@pytest.mark.parametrize("beside", [0, 2])
@pytest.mark.parametrize(
    ("cuts", "limit", "expected"),
    [([5], None, (8, 0, False)), ([5], 7, (7, 1, False)), ([3, 2, 0, 0, 0], None, (5, 3, True))],
)
def test_a_drain_of_a_log_goes_on_behind_what_is_durable_when_its_connection_was_lost(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: Patch,
    cuts: list[int],
    limit: int | None,
    expected: tuple[int, int, bool],
    beside: int,
) -> None:
    """Each reading is cut behind so many letters. What comes beside each of them, to tell how a transaction
    ended, is none of those that a pull began with."""
    left = iter(cuts)

    def cut(self: Any) -> Iterator[Batch]:
        until = next(left, None)
        for number, batch in enumerate(one_by_one(self)):
            if number == until:
                raise ConnectionLost("cut")
            [letter] = batch.records
            more = [letter._replace(record_id=f"{letter.record_id[1:]}{n}") for n in range(beside)]
            yield batch._replace(records=[letter, *more])

    monkeypatch.setattr(patience, "RECONNECT", 0.0)
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 1)
    monkeypatch.setattr(toy_log.ToyReading, "scan", cut)
    result = Log(store, tmp_path, 8).drain(limit)
    assert (result.acknowledged, result.left, result.partial) == expected
    assert result.captured == (1 + beside) * result.acknowledged


def test_no_reading_is_asked_for_less_than_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    """A log may turn out to hold fewer letters than it counted when a pull has taken more than that."""
    limits: list[int | None] = []

    def count_again(self: Any) -> Iterator[Batch]:
        limits.append(self._request.limit)
        yield from islice(one_by_one(self), 5)
        if len(limits) == 1:
            self.snapshot = 2
            raise ConnectionLost("cut")

    monkeypatch.setattr(patience, "RECONNECT", 0.0)
    monkeypatch.setattr(attempt, "SEGMENT_ROWS", 1)
    monkeypatch.setattr(toy_log.ToyReading, "scan", count_again)
    taken = Log(store, tmp_path, 8).drain()
    assert (limits, taken.acknowledged, taken.error) == ([None, 0], 5, None)


def test_who_is_waited_for_is_the_archive_while_it_is_read_or_written_and_else_the_broker(
    shop: Shop, monkeypatch: Patch
) -> None:
    shop.put("a")
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
    shop.take("copy")
    pull(shop.store, shop.connector, SOURCE, PullOptions("drain"), awaits=awaited.append)
    assert seen == {"mended": "archive", "read": "broker", "known": "archive", "settled": "broker"}
    assert (awaited[1], awaited[-1]) == ("archive", "broker")


def test_pulls_that_begin_at_once_have_names_of_their_own() -> None:
    assert len({manifests.new_pull_id() for _ in range(2_000)}) == 2_000


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_pull_tells_it(shop: Shop) -> None:
    shop.put("a")
    with pytest.raises(PullInterrupted) as interrupted:
        pull(shop.store, shop.connector, SOURCE, PullOptions("drain"), interrupt)
    result = interrupted.value.result
    assert (result.snapshot, result.captured) == (1, len(shop.ids()))


def test_a_crash_between_manifest_and_acknowledgement_doubles_nothing(shop: Shop, monkeypatch: Patch) -> None:
    shop.put(*["same"] * 20)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryReading, "acknowledge", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shop.take()
    result = shop.take()
    assert (result.captured, result.recaptured, len(set(shop.ids()))) == (0, 20, 20)


def test_what_the_broker_has_not_answered_may_come_again(shop: Shop, monkeypatch: Patch) -> None:
    shop.put("a")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryReading, "settled_position", lambda _reading: 0)
        assert shop.take().acknowledged == 0
    assert [manifest.settled for manifest in shop.committed()] == [False]
    shop.put("a")
    assert shop.take().captured == 1  # the broker has never delivered it
    shop.put("a")
    shop.broker.sql("UPDATE delivered SET number = number + 1")
    again = shop.take()
    assert (again.captured, again.recaptured, again.acknowledged) == (0, 1, 1)


def test_a_source_is_locked_while_it_is_pulled(shop: Shop) -> None:
    with shop.store.lock("source-orders"), pytest.raises(Busy, match="pid"):
        shop.take()


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_damaged_segment_is_named_and_the_letters_stay_in_the_queue(shop: Shop, harm: str) -> None:
    shop.put("a")
    shop.take()
    [manifest] = shop.committed()
    shop.store.delete(manifest.segment)
    if harm == "damaged":
        shop.store.put(manifest.segment, b"no parquet")
    shop.put("b")
    result = shop.take()
    assert isinstance(result.error, ArchiveError)
    assert f"cannot read {manifest.segment} in the archive" in str(result.error)
    assert shop.depth() == 1
