"""The books: every captured letter is replayed, held, purged or waiting, once, and unchanged. Until a pull
has taken it out it lies in its dead-letter queue, too."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.archives import letter
from support.replaying import Replaying, fill, settings
from support.rows import each_row

from dlq.archive import manifests, segments, views
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import LocalStore, Store
from dlq.core.settings import Broker
from dlq.replay import dismissals, ledger, still_queued
from dlq.replay.plans import planfile
from dlq.replay.still_queued import find_queued, in_words, is_left, of_plan
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
    replay.apply(replay.planned(3))
    replay.apply(replay.plan(to="queue:copy", any_advice=True))
    assert books_as_counted(replay) == Books("orders", captured=3, replayed=3)


def test_the_books_hold_with_dismissed_letters_and_after_taking_it_back(replay: Replaying) -> None:
    ids = [letter.record_id for letter in fill(replay.store, 5)]
    replay.apply(replay.plan(limit=1))
    dismissals.dismiss(replay.ledger, ids[3:], "stale")
    dismissals.dismiss(replay.ledger, ids[:1], "a replay counts before a dismissal")
    assert books_as_counted(replay) == Books("orders", captured=5, replayed=1, dismissed=2, waiting=2)
    assert dismissals.undo(replay.ledger, ids) == 3
    assert books_as_counted(replay) == Books("orders", captured=5, replayed=1, waiting=4)


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


def spoil_headers(store: Store, one: Manifest) -> None:
    """As a disk that has lost a block; nothing else of the letters is touched."""
    content = bytearray(store.get(one.segment))
    group = segments.open_segment(store, one, ["headers"]).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    [values] = [column for column in columns if column.path_in_schema == "headers.key_value.value"]
    end = values.data_page_offset + values.total_compressed_size
    content[end - 16 : end] = bytes(16)
    store.put(one.segment, content)


HARMS: list[tuple[Callable[[Store, Manifest], None], str]] = [
    (lambda store, one: manifests.write(store, replace(one, rows=one.rows + 1)), OTHER),
    (lambda store, one: manifests.write(store, replace(one, digest="another")), OTHER),
    (spoil_headers, UNREADABLE),
    (lambda store, one: store.put(one.segment, b"no parquet"), UNREADABLE),
    (lambda store, one: store.delete(one.segment), UNREADABLE),
]


def test_a_segment_that_is_not_what_was_captured_does_not_balance(replay: Replaying) -> None:
    fill(replay.store, 2)
    [manifest] = manifests.list_committed(replay.store)
    for spoil, problem in HARMS:
        spoil(replay.store, manifest)
        found = books(replay)
        assert (len(found.problems), problem in found.problems[0], found.balanced) == (1, True, False)
        manifests.write(replay.store, manifest)


def test_a_body_that_was_changed_is_found_by_its_digest(replay: Replaying) -> None:
    fill(replay.store, 2)
    changed = [letter(number, body=b"x")._replace(body=b"y") for number in range(10, 14)]
    segments.commit(replay.store, "orders", "p", 7, "copy", changed, {})
    named = ", ".join(one.record_id for one in changed[:3])
    assert books(replay).problems == [f"segment p-00007: 4 bodies are not what was captured: {named}, …"]
    assert (books(replay).captured, books(replay).balanced) == (6, False)


def test_a_damaged_manifest_is_named_beside_the_books(replay: Replaying) -> None:
    fill(replay.store, 2)
    segments.commit(replay.store, "orders", "p", 7, "copy", [letter(50)], {})
    segments.commit(replay.store, "bills", "p", 0, "copy", [letter(51, source="bills")], {})
    for content in (b"{torn", b"[]", b'{"format": 1}', b'{"format": "x"}', b'{"format": 1, "stem": "p"}'):
        replay.store.put("manifests/p-00007.json", content)
        bills, orders = verify(replay.store, replay.config)
        assert (bills.balanced, orders.captured, orders.waiting, orders.balanced) == (True, 2, 2, False)
        assert "manifests/p-00007.json in the archive is damaged" in orders.problems[0]


def test_a_segment_without_a_manifest_is_named_and_in_no_books(replay: Replaying) -> None:
    fill(replay.store, 2)
    [name] = replay.store.list("manifests/")
    replay.store.delete(name)
    found = books(replay)
    assert "segment pull0-00000 has no manifest" in found.notes[0]
    assert (found.captured, found.balanced) == (0, True), "as after every crash of a pull"


def test_a_segment_whose_commit_is_under_way_is_not_named_and_nobody_waits_for_who_looks(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(replay.store, 2)
    replay.store.put("segments/source=orders/date=2026-11-21/p-00009.parquet", b"PAR1")
    with replay.store.lock("source-orders"):
        assert books(replay).notes == []
    taken: list[str] = []
    monkeypatch.setattr(type(replay.store), "lock", lambda _store, name: taken.append(name))
    assert len(books(replay).notes) == 1
    assert taken == [], "a pull that begins just then is not refused"


def captured(store: LocalStore, mode: str, start: int, count: int, is_settled: bool = False) -> Manifest:
    letters = [letter(number, origin_kind="queue") for number in range(start, start + count)]
    return segments.commit(store, "orders", f"pull{start}", 0, mode, letters, {}, is_settled)


def left(replay: Replaying, plan: str) -> dict[str, int]:
    return of_plan(replay.store, replay.config, planfile.load(replay.store, plan))


def test_a_plan_names_copied_letters_until_they_are_drained(replay: Replaying) -> None:
    copied = captured(replay.store, "copy", 0, 10)
    captured(replay.store, "drain", 10, 5, is_settled=True)
    plan = replay.plan(any_advice=True)
    assert left(replay, plan) == {"orders": 10}
    copied = manifests.settle(replay.store, copied, some_ids(replay.store, copied, 4))
    assert left(replay, plan) == {"orders": 6}
    manifests.settle(replay.store, copied)
    assert left(replay, plan) == {}


def test_letters_of_a_place_that_keeps_them_always_are_not_named(replay: Replaying) -> None:
    """Of a stream nothing can be taken out, and a pull goes on from where the last one ended."""
    letters = [letter(number, origin_kind="queue") for number in range(3)]
    segments.commit(replay.store, "orders", "pull0", 0, "copy", letters, {"stream": 3}, False)
    assert left(replay, replay.plan(any_advice=True)) == {}


def test_letters_say_themselves_whether_they_still_lie_there(replay: Replaying) -> None:
    copied = captured(replay.store, "copy", 0, 4)
    captured(replay.store, "drain", 10, 5)
    captured(replay.store, "drain", 20, 6, is_settled=True)
    manifests.settle(replay.store, copied, some_ids(replay.store, copied, 1))
    with views.connect(replay.store, queued=find_queued(replay.store, replay.config)) as connection:
        sql = "SELECT count(*) FROM _placed WHERE still_queued GROUP BY segment_file ORDER BY 1"
        assert connection.execute(sql).fetchall() == [(3,), (5,)]


def test_letters_of_a_source_that_was_renamed_are_named_too(replay: Replaying) -> None:
    captured(replay.store, "drain", 0, 3)
    plan = replay.plan(any_advice=True)
    renamed = replace(replay.config, sources={"new": replace(replay.config.sources["orders"], name="new")})
    counts = of_plan(replay.store, renamed, planfile.load(replay.store, plan))
    assert [words for words, _ in in_words(renamed, counts)] == [
        "3 still lie in the queue of source orders, which is not configured any more: "
        "no pull has taken them out"
    ]


def some_ids(store: LocalStore, manifest: Manifest, count: int) -> set[str]:
    return set(segments.record_ids(store, manifest).to_pylist()[:count])


def test_books_name_the_replayed_ones_and_balance(replay: Replaying) -> None:
    """Also of a drain whose queue was never told to forget them, or never answered."""
    some = [captured(replay.store, mode, start, 5) for mode, start in (("copy", 0), ("drain", 10))]
    plan = replay.plan(any_advice=True, limit=7)
    assert left(replay, plan) == {"orders": 7}
    replay.apply(plan)
    [books] = verify(replay.store, replay.config)
    assert (books.balanced, books.replayed, books.still_queued) == (True, 7, 7)
    assert books.notes == [
        "of the replayed letters 7 still lie in orders.dlq: no pull has taken them out; "
        "next: dlq pull orders --mode drain"
    ]
    for manifest in some:
        manifests.settle(replay.store, manifest)
    [books] = verify(replay.store, replay.config)
    assert (books.balanced, books.still_queued, books.notes) == (True, 0, [])


COUNT = {
    "copied": ("memory", "copy", False, "orders", True),
    "drained since": ("memory", "copy", True, "orders", False),
    "drained": ("memory", "drain", True, "orders", False),
    "captured and not acknowledged": ("memory", "drain", False, "orders", True),
    "from a file": ("memory", "copy", False, "imported", False),
    "from a file, under a configured source": ("memory", "import", False, "orders", False),
    "of a source that has another name now": ("memory", "drain", False, "renamed", True),
    "nothing is ever removed": ("rocketmq", "copy", False, "orders", False),
}


@each_row(("kind", "mode", "settled", "source", "expected"), COUNT.values(), ids=COUNT)
def test_which_segments_count(
    tmp_path: Path, kind: str, mode: str, settled: bool, source: str, expected: bool
) -> None:
    brokers = {"shop": Broker("shop", kind)}
    config = replace(settings(tmp_path), brokers=brokers)
    made = Manifest("s", "p", source, mode, "segments/s", 1, "", "", settled=settled)
    assert is_left(made, config) == expected
