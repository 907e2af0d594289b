"""Letters that are closed without a replay: nothing sends them, and the books know them."""

from support.replaying import Replaying, fill

from dlq.replay import dismissals, planfile
from dlq.replay.verify import Books, verify


def books(replay: Replaying) -> Books:
    (found,) = verify(replay.store, replay.config)
    return found


def test_a_plan_leaves_dismissed_letters_out_whatever_is_said(replay: Replaying) -> None:
    first, second = (letter.record_id for letter in fill(replay.store, 2))
    dismissals.dismiss(replay.ledger, [first], "stale")
    named = f"record_id in ('{first}', '{second}')"
    for wanted in ({}, {"any_advice": True}, {"where": named}):
        header = planfile.load(replay.store, replay.plan(**wanted))
        assert (header.letters, header.left_out) == (1, {"dismissed": 1})


def test_what_is_dismissed_after_planning_is_not_sent(replay: Replaying) -> None:
    letters = fill(replay.store, 5)
    plan = replay.plan()
    dismissals.dismiss(replay.ledger, [letters[2].record_id], "stale")
    assert replay.apply(plan).sent == 4
    assert len(replay.queue.arrived()) == 4
    dismissals.undo(replay.ledger, [letters[2].record_id])
    assert replay.apply(plan).sent == 1


def test_the_books_hold_with_dismissed_letters_and_after_taking_it_back(replay: Replaying) -> None:
    ids = [letter.record_id for letter in fill(replay.store, 5)]
    replay.apply(replay.plan(limit=1))
    dismissals.dismiss(replay.ledger, ids[3:], "stale")
    dismissals.dismiss(replay.ledger, ids[:1], "a replay counts before a dismissal")
    found = books(replay)
    assert (found.captured, found.replayed, found.dismissed, found.waiting) == (5, 1, 2, 2)
    assert found.balanced
    assert dismissals.undo(replay.ledger, ids) == 3
    found = books(replay)
    assert (found.replayed, found.dismissed, found.waiting, found.balanced) == (1, 0, 4, True)
