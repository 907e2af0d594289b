"""Letters lie in their dead-letter queue after their replay, until a pull has taken them out."""

from dataclasses import replace
from pathlib import Path

from support.archives import letter
from support.replaying import Replaying, settings
from support.rows import each_row

from dlq.archive import manifests, segments, views
from dlq.archive.manifests import Manifest
from dlq.archive.store import LocalStore
from dlq.core.settings import Broker
from dlq.replay import planfile
from dlq.replay.still_queued import find_queued, in_words, is_left, of_plan
from dlq.replay.verify import verify


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


def test_a_plan_names_letters_of_a_drain_that_was_never_settled(replay: Replaying) -> None:
    """Their queue was never told to forget them, or never answered."""
    drained = captured(replay.store, "drain", 0, 10)
    plan = replay.plan(any_advice=True)
    assert left(replay, plan) == {"orders": 10}
    replay.apply(plan)
    [books] = verify(replay.store, replay.config)
    assert (books.balanced, books.still_queued) == (True, 10)
    manifests.settle(replay.store, drained)
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
    copied = captured(replay.store, "copy", 0, 10)
    replay.apply(replay.plan(any_advice=True, limit=7))
    [books] = verify(replay.store, replay.config)
    assert (books.balanced, books.replayed, books.still_queued) == (True, 7, 7)
    assert books.notes == [
        "of the replayed letters 7 still lie in orders.dlq: no pull has taken them out; "
        "next: dlq pull orders --mode drain"
    ]
    manifests.settle(replay.store, copied)
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
