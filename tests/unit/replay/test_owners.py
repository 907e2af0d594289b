"""What the owner of a consumer says of replays, and what follows for letters and plans."""

from dataclasses import replace

import pytest
from support.planning import Planning
from support.replaying import Replaying, fill
from support.rows import each_row

from dlq.core.clock import now
from dlq.core.errors import UsageError
from dlq.core.settings import Consumer, Evidence, Settings
from dlq.replay.plans.owners import Owners

HOUR = 3_600_000_000
DEDUP = Evidence("dedup", "shine-mq", "redis://127.0.0.1", ("orders*",))


@each_row("word, holds_for, has_store, hours, of_each", [
    ("safe", None, False, 5, "replay replay fix_first never hold None"),
    ("safe", None, True, 5, "check_first replay fix_first never hold None"),
    ("safe", "6h", False, 5, "replay replay fix_first never hold None"),
    ("safe", "4h", False, 5, "check_first check_first check_first never hold None"),
    ("safe", "4h", True, 5, "check_first check_first check_first never hold None"),
    ("safe", "4h", False, None, "check_first check_first check_first never hold None"),
    ("check_first", None, False, 5, "check_first check_first check_first never hold None"),
    ("check_first", None, True, 5, "check_first check_first check_first never hold None"),
    ("never", "4h", False, 5, "never never never never hold None"),
    (None, "4h", False, 5, "check_first check_first check_first never hold None"),
    (None, None, False, 5, "check_first replay fix_first never hold None"),
])  # fmt: skip
def test_the_owners_word_stands_beside_the_verdict(
    word: str | None, holds_for: str | None, has_store: bool, hours: int | None, of_each: str
) -> None:
    billing = Consumer("billing", ("ord*",), word, holds_for=holds_for)
    settings = Settings(consumers={"billing": billing}, evidence={"dedup": DEDUP} if has_store else {})
    oldest = None if hours is None else now() - hours * HOUR
    advice = ["check_first", "replay", "fix_first", "never", "hold", None]
    assert [str(Owners(settings).advise("orders", one, oldest)) for one in advice] == of_each.split()
    assert [Owners(settings).advise("payments", one, oldest) for one in advice] == advice


def test_of_several_owners_the_strictest_word_counts() -> None:
    words = ("safe", "check_first", "never")
    for count, wanted in ((1, "replay"), (2, "check_first"), (3, "never")):
        consumers = {word: Consumer(word, ("*",), word) for word in words[:count]}
        assert Owners(Settings(consumers=consumers)).advise("orders", "check_first", 0) == wanted


def test_a_plan_leaves_out_what_is_older_than_the_owners_word_holds(plan: Planning) -> None:
    billing = Consumer("billing", ("orders",), "safe", "dedupes on order_id", "1h", "Pause the settlement")
    plan.config = replace(plan.config, consumers={"billing": billing})
    fill(plan.store, 3, "check_first", dead_at=now() - HOUR // 2)
    header = plan()
    assert (header.letters, header.left_out) == (3, {})
    assert header.owners == ["billing: safe (dedupes on order_id). Before: Pause the settlement"]

    fill(plan.store, 2, "replay", 3, dead_at=now(), published_at=now() - 2 * HOUR)
    header = plan()
    assert (header.letters, header.left_out) == (0, {"no_verdict": 3, "check_first": 2})
    assert header.owners == [
        "billing: safe (dedupes on order_id); 2 of 5 are older: check_first. Before: Pause the settlement"
    ]


def test_a_plan_that_outlives_a_word_that_it_rests_on_is_refused(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = now() + HOUR
    billing = Consumer("billing", ("orders",), "safe", holds_for="1h")
    replay.config = replace(replay.config, consumers={"billing": billing})
    fill(replay.store, 3, "check_first", dead_at=now() - HOUR // 2)
    early = replay.plan()
    assert replay.apply(early).sent == 3
    fill(replay.store, 1, "check_first", 7, dead_at=now() - HOUR // 2)
    late = replay.plan(where="dead_at > now() - INTERVAL 50 MINUTE")
    monkeypatch.setattr("dlq.replay.runs.apply.now", lambda: later)
    assert replay.apply(early).sent == 0, "it has ended"
    with pytest.raises(UsageError, match="an owner's word does not hold any more for some of its letters"):
        replay.apply(late)


def test_an_apply_stops_when_a_word_that_it_rests_on_ends_meanwhile(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = now()
    billing = Consumer("billing", ("orders",), "safe", holds_for="1h")
    replay.config = replace(replay.config, consumers={"billing": billing})
    fill(replay.store, 30, "check_first", dead_at=begun - HOUR // 2)
    plan = replay.plan()
    monkeypatch.setattr(
        "dlq.replay.runs.apply.now", lambda: begun + HOUR if len(replay.queue.arrived()) > 4 else begun
    )
    run = replay.apply(plan)
    assert run.stopped
    assert [note for note in run.notes if note.startswith("stopped: since ")] == run.notes
    assert replay.states(plan) == {"confirmed": run.sent, "planned": 30 - run.sent}
    assert 5 <= run.sent < 30
