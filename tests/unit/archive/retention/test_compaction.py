"""Compaction: segments are written again, and every letter stays what it was, whatever crashes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.retaining import Shop

from dlq.analyzers.analysis import analyze
from dlq.archive import analyses, housekeeping, manifests, segments, user_sql, views
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import ArchiveError, Busy
from dlq.core.settings import Settings


def test_many_small_segments_become_one_with_the_same_letters(shop: Shop) -> None:
    shop.runs(*((f"{n}",) for n in range(12)))
    before = sorted(shop.ids)
    shop.retain(compact=True)
    (one,) = shop.committed
    assert sorted(shop.ids) == before
    assert (one.settled, one.rows, len(shop.files), len(shop.store.list("manifests/"))) == (True, 12, 1, 1)
    assert shop.books.balanced
    assert shop.look(compact=True).groups == {"orders": []}


def test_segments_that_no_analysis_has_read_are_not_mixed_with_others(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    analyze(shop.store, Settings(), engine="plain")
    shop.runs(("c",), ("d", "e"))
    shop.retain(compact=True)
    assert [one.rows for one in shop.committed] == [2, 3]
    assert [one.rows for one in analyses.unread(shop.store, shop.committed)] == [3]


def test_segments_of_which_many_letters_were_removed_stay_apart(shop: Shop) -> None:
    """No command reads an archive where a manifest names more of them than its bound."""
    for number, purged in enumerate((400_000, 5_000_000, 450_000, 499_999, 400_000)):
        made = segments.commit(shop.store, "orders", "20261121T000000-abcd", number, "drain", [], {})
        manifests.write(shop.store, replace(made, purged=purged))
    (groups,) = shop.look(compact=True).groups.values()
    assert [[one.purged for one in group] for group in groups] == [[400_000, 450_000], [499_999, 400_000]]


def test_the_checkpoint_and_the_time_of_a_drain_outlive_compaction(shop: Shop) -> None:
    for day, reached in ((20, {"q0": 5, "q1": 9}), (21, {"q0": 7})):
        segments.commit(shop.store, "orders", f"202611{day}T000000-abcd", 1, "drain", [], reached)
    shop.retain(compact=True)
    (one,) = shop.committed
    assert (dict(one.checkpoint), one.rows, one.mode) == ({"q0": 7, "q1": 9}, 0, "drain")
    assert one.pull_id == "20261121T000000-abcd"


def test_copies_that_were_compacted_are_still_known_when_they_are_drained(shop: Shop) -> None:
    for body in ("a", "b", "b"):
        shop.put(body)
        shop.take("copy")
    before = sorted(shop.ids)
    shop.retain(compact=True)
    drained = shop.take("drain")
    assert (drained.captured, drained.recaptured, sorted(shop.ids)) == (0, 3, before)
    assert all(manifest.settled for manifest in shop.committed)


class Crash(Exception):
    """The process ends here."""


def crash_at(store: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    real: Callable[..., None] = getattr(store, call)
    calls = iter(range(1, 1000))

    def dying(*arguments: Any) -> None:
        if next(calls) == number:
            raise Crash
        real(*arguments)

    monkeypatch.setattr(store, call, dying)


CRASHES = [("put", 1), ("put", 2), ("put", 3), *(("delete", n) for n in range(1, 7))]


@pytest.mark.parametrize(("call", "number"), CRASHES)
def test_a_crash_in_mid_compaction_loses_and_doubles_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    shop.runs(("a", "b"), ("c",), ("d",))
    gone, *kept = shop.ids
    shop.ledger_says("confirmed", gone)
    with monkeypatch.context() as patched:
        crash_at(shop.store, patched, call, number)
        with pytest.raises(Crash):
            shop.retain(compact=True)
    assert shop.books.captured == 4
    assert shop.books.problems == []
    assert set(kept) <= set(shop.ids)
    shop.runs(("e",))
    shop.retain(compact=True)
    assert len(shop.ids) == 4
    assert (shop.books.captured, shop.books.purged, shop.books.balanced) == (5, 1, True)
    assert len(shop.files) == len(shop.store.list("manifests/")) == 1
    assert len(shop.store.list("purged/")) == 1


def test_retention_that_fails_every_night_stops_no_pull(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.runs(("a",), ("b",))
    for _ in range(4):
        with monkeypatch.context() as patched:
            crash_at(shop.store, patched, "put", 2)
            with pytest.raises(Crash):
                shop.retain(compact=True)
    shop.runs(("c",))
    assert (len(shop.ids), len(shop.files)) == (3, 3)


def test_a_damaged_segment_is_not_written_again(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    first, second = shop.files
    shop.store.put(first, shop.store.get(second))
    with pytest.raises(ArchiveError, match="not what its manifest says"):
        shop.retain(compact=True)


def test_a_source_that_is_pulled_waits_for_the_next_time(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    work = shop.look(compact=True)
    with shop.store.lock("source-orders"):
        done = housekeeping.do(shop.store, work, lambda: shop.replays)
    assert len(done.busy) == 1
    assert "pid" in done.busy[0]
    assert len(shop.files) == 2


def test_two_rounds_at_once_are_one_too_many(shop: Shop) -> None:
    shop.runs(("a",))
    with shop.store.lock("retain"), pytest.raises(Busy, match="pid"):
        shop.retain()


def test_a_pull_between_look_and_do_wins(shop: Shop) -> None:
    shop.put("a", "b")
    shop.take("copy")
    shop.put("c")
    shop.take("copy")
    work = shop.look(compact=True)
    shop.take("drain")
    housekeeping.do(shop.store, work, lambda: shop.replays)
    assert all(manifest.settled for manifest in shop.committed)
    assert len(shop.ids) == 3


def compact_meanwhile(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, just after somebody has looked which segments there are."""
    listed, done = manifests.list_committed, []

    def listing(*words: Any, **more: Any) -> Iterator[Manifest]:
        found = list(listed(*words, **more))
        if not done and len(found) > 1:
            done.append(True)
            shop.retain(compact=True)
        return iter(found)

    monkeypatch.setattr(manifests, "list_committed", listing)


def test_who_looks_while_segments_become_one_sees_all_letters(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.runs(*((f"{n}",) for n in range(3)))
    compact_meanwhile(shop, monkeypatch)
    found = user_sql.run(views.connect(shop.store), "SELECT count(*) FROM letters")
    assert list(found.rows) == [(3,)]


def test_what_still_lies_in_its_queue_does_so_when_segments_become_one(shop: Shop) -> None:
    for body in ("a", "b", "c"):
        shop.put(body)
        shop.take("copy")
    queued = {manifest.stem: frozenset(manifest.settled_ids) for manifest in shop.committed}
    shop.retain(compact=True)
    found = user_sql.run(views.connect(shop.store, queued=queued), "SELECT still_queued FROM letters")
    assert list(found.rows) == [(True,)] * 3


def test_books_balance_while_segments_become_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.runs(*((f"{n}",) for n in range(3)))
    compact_meanwhile(shop, monkeypatch)
    books, work = shop.books, shop.look(compact=True)
    assert (books.captured, books.balanced, books.notes) == (3, True, [])
    assert (work.segments, work.choice.kept) == (1, 3)


def test_a_segment_that_is_gone_is_named_at_once(shop: Shop) -> None:
    shop.runs(("a",), ("b",))
    gone = next(iter(shop.committed))
    shop.store.delete(gone.segment)
    with pytest.raises(ArchiveError, match="No such file"):
        views.connect(shop.store)
    assert shop.books.problems == [f"segment {gone.stem} cannot be read"]
