"""The books: every captured letter is replayed, held, purged or waiting, once, and unchanged."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from archives import letter
from replaying import Replaying, fill

from dlq.archive import manifests, segments
from dlq.core.errors import BooksDoNotBalance
from dlq.replay.verify import Books, verify


def books(replay: Replaying) -> Books:
    [found] = verify(replay.store, replay.config)
    return found


def test_an_empty_archive_balances(replay: Replaying) -> None:
    assert verify(replay.store, replay.config) == []


def test_what_was_captured_waits(replay: Replaying) -> None:
    fill(replay.store, 5)
    assert books(replay) == Books("orders", captured=5, waiting=5)
    assert books(replay).balanced


def test_each_letter_is_counted_once_wherever_it_is(replay: Replaying) -> None:
    fill(replay.store, 10)
    plan = replay.plan(limit=6)
    replay.queue.fate = lambda number: ("confirmed", "returned", "in_doubt")[number % 3]
    replay.apply(plan)
    doubtful = [entry.record_id for entry in replay.ledger.entries(plan, "in_doubt")]
    assert not books(replay).balanced
    replay.reconcile(plan, hold=(doubtful[0],), sent=(doubtful[1],))
    assert books(replay) == Books("orders", captured=10, replayed=3, held=1, waiting=6)
    assert books(replay).balanced


def test_a_letter_replayed_to_two_targets_is_replayed_once(replay: Replaying) -> None:
    fill(replay.store, 3)
    replay.apply(replay.plan())
    replay.apply(replay.plan(to="queue:copy", any_advice=True))
    assert books(replay) == Books("orders", captured=3, replayed=3)


def test_doubt_does_not_balance(replay: Replaying) -> None:
    fill(replay.store, 3)
    replay.queue.fate = lambda _number: "in_doubt"
    replay.apply(replay.plan())
    found = books(replay)
    assert (found.in_doubt, found.waiting, found.balanced) == (3, 0, False)
    assert "dlq replay reconcile" in found.problems[0]


def test_purged_letters_are_remembered_by_the_manifest(replay: Replaying) -> None:
    fill(replay.store, 3)
    [manifest] = manifests.every(replay.store)
    manifests.write(replay.store, replace(manifest, purged=7))
    assert books(replay) == Books("orders", captured=10, purged=7, waiting=3)
    assert books(replay).balanced


def test_sources_have_books_of_their_own(replay: Replaying) -> None:
    fill(replay.store, 2)
    segments.commit(replay.store, "bills", "p", 0, "copy", [letter(50, source="bills")], {})
    assert [(b.source, b.captured, b.balanced) for b in verify(replay.store, replay.config)] == [
        ("bills", 1, True),
        ("orders", 2, True),
    ]


def test_a_letter_in_the_archive_twice_does_not_balance(replay: Replaying) -> None:
    fill(replay.store, 2)
    segments.commit(replay.store, "orders", "p", 9, "copy", [letter(1)], {})
    assert books(replay).problems == ["1 letters are in the archive twice"]


def spoil(replay: Replaying, harm: str) -> None:
    [manifest] = manifests.every(replay.store)
    if harm == "gone":
        replay.store.delete(manifest.segment)
    elif harm == "damaged":
        replay.store.put(manifest.segment, b"no parquet")
    elif harm == "other rows":
        manifests.write(replay.store, replace(manifest, rows=manifest.rows + 1))
    else:
        manifests.write(replay.store, replace(manifest, digest="another"))


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        ("gone", "cannot be read"),
        ("damaged", "cannot be read"),
        ("other rows", "not what its manifest says"),
        ("digest", "not what its manifest says"),
    ],
)
def test_a_segment_that_is_not_what_was_captured_does_not_balance(
    replay: Replaying, harm: str, problem: str
) -> None:
    fill(replay.store, 2)
    spoil(replay, harm)
    problems: Sequence[str] = books(replay).problems
    assert len(problems) == 1
    assert problem in problems[0]
    assert not books(replay).balanced


def test_a_damaged_manifest_is_named_and_the_books_do_not_balance(replay: Replaying) -> None:
    fill(replay.store, 2)
    [name] = replay.store.list("manifests/")
    replay.store.put(name, b"{torn")
    with pytest.raises(BooksDoNotBalance, match=name):
        verify(replay.store, replay.config)
