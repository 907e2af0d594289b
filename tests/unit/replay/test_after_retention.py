"""Plans find their letters again after retention and compaction have written the segments anew."""

import pytest
from support.replaying import Replaying, fill

from dlq.archive import compaction, housekeeping, manifests
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.settings import Retain
from dlq.replay import ledger as ledgers
from dlq.replay.dismissals import dismiss
from dlq.replay.plans import planfile
from dlq.replay.plans.plan import _Planner
from dlq.replay.plans.planfile import letters
from dlq.replay.plans.wanted import condition_of_ids
from dlq.replay.runs.load import Loader
from dlq.replay.verify import verify

EVERYTHING = Retain(max_size="0B", states=("waiting", "replayed"))


def retain(replay: Replaying, rules: Retain | None = None) -> None:
    replays = ledgers.as_arrow(replay.config.ledger, replay.store)
    work = housekeeping.look(replay.store, rules or Retain(), replays, compact=True)
    housekeeping.do(replay.store, work, lambda: replays)


def settle(replay: Replaying) -> None:
    for manifest in manifests.list_committed(replay.store):
        manifests.settle(replay.store, manifest)


@pytest.fixture
def plan(replay: Replaying) -> str:
    """Ten letters of two segments, last segment first."""
    fill(replay.store, 5, advice=None)
    fill(replay.store, 5, advice=None, start=100)
    return replay.plan(any_advice=True, where="record_id is not null")


def test_a_plan_outlives_compactions(replay: Replaying, plan: str) -> None:
    retain(replay)
    assert len(list(manifests.list_committed(replay.store))) == 1
    fill(replay.store, 5, advice=None, start=200)
    retain(replay)
    replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 10}
    assert sorted(replay.queue.arrived()) == sorted(replay.keys(plan))


def test_compaction_in_the_middle_of_an_apply_is_not_noticed(replay: Replaying, plan: str) -> None:
    planned, loader = list(letters(replay.store, plan)), Loader(replay.store)
    before = Loader(replay.store).records(planned)
    first = loader.records(planned[:3])
    retain(replay)
    assert [*first, *loader.records(planned[3:])] == before
    assert [record.record_id for record in before] == [one.record_id for one in planned]
    loader.check(planfile.load(replay.store, plan), planned, replay.ledger)


def test_compaction_while_a_plan_is_made_leaves_it_all_that_it_was_made_of(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _Planner._commit

    def committing(self: _Planner, draft: planfile.Draft) -> planfile.Header:
        retain(replay)
        return made(self, draft)

    monkeypatch.setattr(_Planner, "_commit", committing)
    for start in (0, 100):
        fill(replay.store, 5, advice=None, start=start)
    plan = replay.plan(any_advice=True)
    header = planfile.load(replay.store, plan)
    assert {letter.segment for letter in letters(replay.store, plan)} == header.segments.keys()
    assert Loader(replay.store).sources(header.segments) == ["orders"]


@pytest.mark.parametrize("too_much", [1, None])
def test_a_plan_of_which_letters_were_removed_says_so_and_sends_none(
    replay: Replaying, plan: str, too_much: int | None
) -> None:
    settle(replay)
    size = sum(compaction.size_of(replay.store, one) for one in manifests.list_committed(replay.store))
    retain(replay, Retain(max_size=f"{size - (too_much or size)}B", states=("waiting",)))
    with pytest.raises(UsageError, match="make a new plan"):
        replay.apply(plan)
    assert replay.queue.arrived() == []


def test_a_plan_outlives_the_removal_of_letters_that_are_over(replay: Replaying, plan: str) -> None:
    settle(replay)
    planned = list(letters(replay.store, plan))
    some = replay.plan(any_advice=True, where=condition_of_ids(one.record_id for one in planned[:4]))
    replay.apply(some)
    dismiss(replay.ledger, [planned[4].record_id], "of no use")
    retain(replay, Retain(max_size="0B", states=("replayed", "dismissed")))
    with pytest.raises(ArchiveError, match=planned[0].record_id):
        Loader(replay.store).records(planned[:1])
    replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 9, "dismissed": 1}


def test_what_is_in_doubt_is_still_there_to_be_reconciled(replay: Replaying, plan: str) -> None:
    settle(replay)
    replay.queue.fate = lambda number: "in_doubt" if number % 2 else "confirmed"
    replay.apply(plan)
    retain(replay, EVERYTHING)
    doubtful = [entry.record_id for entry in replay.ledger.entries(plan, "in_doubt")]
    assert len(doubtful) == 5
    (books,) = verify(replay.store, replay.config)
    assert (books.captured, books.purged, books.in_doubt) == (10, 5, 5)
    replay.reconcile(plan, sent=tuple(doubtful))
    (books,) = verify(replay.store, replay.config)
    assert (books.replayed, books.balanced) == (5, True)
