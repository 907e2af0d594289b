"""The books: every captured letter is replayed, held, purged or waiting, once, and unchanged."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.archives import letter
from support.replaying import Replaying, fill

from dlq.archive import manifests, segments, views
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.replay import ledger, still_queued
from dlq.replay.verify import Books, count, verify


def books(replay: Replaying) -> Books:
    [found] = verify(replay.store, replay.config)
    return found


def books_as_counted(replay: Replaying) -> Books:
    """The same for who looks at them, by numbers alone."""
    queued = still_queued.find_queued(replay.store, replay.config)
    replays = ledger.as_arrow(replay.config.ledger, replay.store)
    with views.connect(replay.store, replays, queued=queued) as connection:
        [found] = count(connection, replay.store, replay.config)
    assert found == books(replay)
    return found


def test_what_was_captured_waits(replay: Replaying) -> None:
    assert verify(replay.store, replay.config) == []
    fill(replay.store, 3000)  # read a few rows at a time
    assert books(replay) == Books("orders", captured=3000, waiting=3000)
    assert books(replay).balanced


def test_each_letter_is_counted_once_wherever_it_is(replay: Replaying) -> None:
    plan = replay.planned(10, limit=6)
    replay.queue.fate = lambda number: ("confirmed", "returned", "in_doubt")[number % 3]
    replay.apply(plan)
    doubtful = [entry.record_id for entry in replay.ledger.entries(plan, "in_doubt")]
    assert (books_as_counted(replay).in_doubt, books(replay).balanced) == (2, False)
    assert "dlq replay reconcile" in books(replay).problems[0]
    replay.reconcile(plan, hold=(doubtful[0],), sent=(doubtful[1],))
    assert books_as_counted(replay) == Books("orders", captured=10, replayed=3, held=1, waiting=6)
    assert books(replay).balanced


def test_a_letter_replayed_to_two_targets_is_replayed_once(replay: Replaying) -> None:
    fill(replay.store, 3)
    replay.apply(replay.plan())
    replay.apply(replay.plan(to="queue:copy", any_advice=True))
    assert books_as_counted(replay) == Books("orders", captured=3, replayed=3)


def test_purged_letters_are_remembered_by_the_manifest(replay: Replaying) -> None:
    fill(replay.store, 3)
    [manifest] = manifests.list_committed(replay.store)
    manifests.write(replay.store, replace(manifest, purged=7))
    assert books_as_counted(replay) == Books("orders", captured=10, purged=7, waiting=3)
    assert books(replay).balanced


def test_sources_have_books_of_their_own(replay: Replaying) -> None:
    """A damaged manifest without a segment is of an unknown one."""
    fill(replay.store, 2)
    segments.commit(replay.store, "bills", "p", 0, "copy", [letter(50, source="bills")], {})
    replay.store.put("manifests/q-00001.json", b"{}")
    assert [(b.source, b.captured, b.balanced) for b in verify(replay.store, replay.config)] == [
        ("(unknown)", 0, False), ("bills", 1, True), ("orders", 2, True),
    ]  # fmt: skip


def test_a_letter_in_the_archive_twice_does_not_balance(replay: Replaying) -> None:
    fill(replay.store, 2)
    segments.commit(replay.store, "orders", "p", 9, "copy", [letter(1)], {})
    assert books(replay).problems == ["1 letters are in the archive twice"]


UNREADABLE, OTHER = "cannot be read", "not what its manifest says"
HARMS: dict[str, tuple[Callable[[Store, Manifest], None], str]] = {
    "gone": (lambda store, one: store.delete(one.segment), UNREADABLE),
    "damaged": (lambda store, one: store.put(one.segment, b"no parquet"), UNREADABLE),
    "other rows": (lambda store, one: manifests.write(store, replace(one, rows=one.rows + 1)), OTHER),
    "digest": (lambda store, one: manifests.write(store, replace(one, digest="another")), OTHER),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_segment_that_is_not_what_was_captured_does_not_balance(replay: Replaying, harm: str) -> None:
    fill(replay.store, 2)
    spoil, problem = HARMS[harm]
    spoil(replay.store, *manifests.list_committed(replay.store))
    found = books(replay)
    assert (len(found.problems), problem in found.problems[0], found.balanced) == (1, True, False)


def test_a_body_that_was_changed_is_found_by_its_digest(replay: Replaying) -> None:
    fill(replay.store, 2)
    changed = [letter(number, body=b"x")._replace(body=b"y") for number in range(10, 14)]
    segments.commit(replay.store, "orders", "p", 7, "copy", changed, {})
    named = ", ".join(one.record_id for one in changed[:3])
    assert books(replay).problems == [f"segment p-00007: 4 bodies are not what was captured: {named}, …"]
    assert (books(replay).captured, books(replay).balanced) == (6, False)


@pytest.mark.parametrize(
    "content", [b"{torn", b"[]", b'{"format": 1}', b'{"format": "x"}', b'{"format": 1, "stem": "p"}']
)
def test_a_damaged_manifest_is_named_beside_the_books(replay: Replaying, content: bytes) -> None:
    fill(replay.store, 2)
    segments.commit(replay.store, "orders", "p", 7, "copy", [letter(50)], {})
    segments.commit(replay.store, "bills", "p", 0, "copy", [letter(51, source="bills")], {})
    replay.store.put("manifests/p-00007.json", content)
    bills, orders = verify(replay.store, replay.config)
    assert bills.balanced
    assert (orders.captured, orders.waiting, orders.balanced) == (2, 2, False)
    assert "manifests/p-00007.json in the archive is damaged" in orders.problems[0]


def test_a_segment_without_a_manifest_is_named_and_in_no_books(replay: Replaying) -> None:
    fill(replay.store, 2)
    [name] = replay.store.list("manifests/")
    replay.store.delete(name)
    found = books(replay)
    assert "segment pull0-00000 has no manifest" in found.notes[0]
    assert (found.captured, found.balanced) == (0, True), "as after every crash of a pull"


def test_a_segment_whose_commit_is_under_way_is_not_named(replay: Replaying) -> None:
    fill(replay.store, 2)
    replay.store.put("segments/source=orders/date=2026-11-21/p-00009.parquet", b"PAR1")
    with replay.store.lock("source-orders"):
        assert books(replay).notes == []
    assert len(books(replay).notes) == 1


def test_nobody_waits_for_who_looks(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(replay.store, 2)
    replay.store.put("segments/source=orders/date=2026-11-21/p-00009.parquet", b"PAR1")
    taken: list[str] = []
    monkeypatch.setattr(type(replay.store), "lock", lambda _store, name: taken.append(name))
    assert len(books(replay).notes) == 1
    assert taken == [], "a pull that begins just then is not refused"
