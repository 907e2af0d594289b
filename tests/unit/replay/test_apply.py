"""Carrying out a plan: wherever it breaks, nothing that was confirmed is sent twice, nothing is forgotten."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.archives import letter
from support.ledger_contract import MovingClock
from support.replaying import QueueFile, Replaying, confirm, fill
from support.rows import each_row
from support.waiting import SOON

from dlq.archive import manifests, segments
from dlq.connectors.base import Outcome, SendRequest
from dlq.core.errors import ArchiveError, BrokerError, Busy, ConnectionLost, Unreachable, UsageError
from dlq.replay import dismissals
from dlq.replay.ledger import claims
from dlq.replay.ledger.database import File
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.plans import planfile
from dlq.replay.runs import pace
from dlq.replay.runs.apply import Run
from dlq.replay.runs.pace import Stop, request_rate, request_stop

WINDOW = 40


def test_every_letter_arrives_once_in_order(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, other = replay.planned(100), replay.plan(any_advice=True)
    run = replay.apply(plan)
    assert (run.sent, run.skipped, run.stopped, run.lost) == (100, 0, False, [])
    assert replay.queue.arrived() == replay.keys(plan)
    assert replay.queue.forgotten == [(plan, False)], "also what a publisher leaves without a witness"
    monkeypatch.delattr(QueueFile, "publisher")
    for again in (plan, other):
        run = replay.apply(again)
        assert (run.sent, run.skipped, replay.states(again)) == (0, 100, {"confirmed": 100})


def test_a_broker_that_left_the_configuration_is_a_usage_error(replay: Replaying) -> None:
    plan, empty = replay.planned(1), replay.plan(where="false")
    assert (replay.apply(empty).sent, replay.states(empty)) == (0, {})
    replay.config = replace(replay.config, brokers={})
    with pytest.raises(UsageError, match="'shop' is not in the configuration"):
        replay.apply(plan)


def test_a_letter_that_the_archive_holds_twice_is_sent_once(replay: Replaying) -> None:
    twin = letter(1, origin_kind="queue")
    segments.commit(replay.store, "orders", "p", 0, "copy", [twin, twin], {})
    run = replay.apply(replay.plan(any_advice=True))
    assert (run.sent, run.skipped) == (1, 1)


def test_what_another_plan_has_sent_to_another_target_meanwhile_is_left_out(replay: Replaying) -> None:
    outcomes: list[Outcome] = ["confirmed", "in_doubt", "refused"]
    fill(replay.store, len(outcomes))
    first, second = replay.plan(), replay.plan(to="queue:second")
    insisting = replay.plan(to="queue:third", again=True)
    replay.queue.fate = outcomes.__getitem__
    replay.apply(first)
    replay.queue.fate = confirm
    for sent in (1, 0):
        run = replay.apply(second)
        assert (run.sent, run.elsewhere) == (
            sent, {"confirmed at queue:orders": 1, "in doubt at queue:orders": 1},
        )  # fmt: skip
    assert replay.apply(insisting).sent == 3
    run = replay.apply(first)
    assert (run.skipped, run.elsewhere) == (3, {}), "what it has sent itself is not left out"


def test_what_another_plan_is_about_to_send_to_another_target_is_left_out_until_that_has_ended(
    replay: Replaying,
) -> None:
    fill(replay.store, 3)
    first, second = replay.plan(), replay.plan(to="queue:second")
    insisting = replay.plan(to="queue:third", again=True)
    with replay.store.lock(f"plan-{first}"):
        run = replay.apply(second)
        assert (run.sent, run.elsewhere) == (0, {"going to queue:orders": 3})
        assert replay.apply(insisting).sent == 3
    assert replay.apply(second).elsewhere == {"confirmed at queue:third": 3}
    with replay.store.lock("plan-20260101T000000-abcdef"), pytest.raises(UsageError, match="abcdef"):
        replay.apply(second)  # which letters that one sends cannot be seen


def test_what_was_left_out_is_named_and_goes_when_the_plan_is_applied_again(replay: Replaying) -> None:
    replay.queue.fate = lambda number: "unsent" if number % 2 else "confirmed"
    plan = replay.planned(10)
    run = replay.apply(plan)
    assert (run.sent, replay.states(plan)) == (5, {"confirmed": 5, "planned": 5})
    [line] = run.refused
    assert "and 4 more are left out, and may go later: it was unsent" in line
    replay.queue.fate = confirm
    assert replay.apply(plan).sent == 5


@each_row("outcome", ["returned", "refused"])
def test_what_the_broker_did_not_take_goes_with_a_new_plan_not_with_the_old_one(
    replay: Replaying, outcome: Outcome
) -> None:
    fill(replay.store, 10, start=100 * len(outcome))
    replay.queue.fate = lambda number: outcome if number % 2 else "confirmed"
    plan = replay.plan()
    replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 5, outcome: 5}
    assert {entry.detail for entry in replay.ledger.entries(plan, outcome)} == {f"it was {outcome}"}
    replay.queue.fate = confirm
    assert [replay.apply(one).sent for one in (plan, replay.plan())] == [0, 0]
    again = replay.plan(any_advice=True)
    assert replay.states(again) == {"planned": 5}
    assert replay.apply(again).sent == 5
    assert replay.states(plan) == {"confirmed": 10}


def bring(replay: Replaying, plan: str, state: str) -> None:
    """The one letter of a plan into a state, as commands do; resolved: it was in doubt, and was not sent."""
    [one] = planfile.letters(replay.store, plan)
    if state == "sending":
        planfile.keep_bounds(replay.store, plan, one.broker, {str(one.target): 0})
        replay.ledger.claim(plan, [one])
    elif state == "dismissed":
        dismissals.dismiss(replay.ledger, [one.record_id], "stale")
    elif state != "planned":
        doubtful = {"resolved": "not_sent", "held": "hold"}
        outcome = "in_doubt" if state in doubtful else state
        replay.queue.fate = lambda _number: outcome  # type: ignore[return-value]
        replay.apply(plan)
        if state in doubtful:
            replay.reconcile(plan, **{doubtful[state]: (one.record_id,)})
        replay.queue.fate = confirm


MADE: dict[str, tuple[str, dict[str, object]]] = {
    "before": ("before", {"any_advice": True}),
    "before, to another target": ("before", {"any_advice": True, "to": "queue:second"}),
    "since": ("since", {}),
    "since, and insists": ("since", {"any_advice": True}),
    "meanwhile": ("meanwhile", {}),
}
ALWAYS, NEVER, ANEW = (1, 1, 1, 1, 1), (0, 0, 0, 0, 0), (0, 1, 0, 1, 0)
OF_TWO: dict[str, tuple[int, ...]] = {
    "planned": ALWAYS, "resolved": ALWAYS, "sending": NEVER, "confirmed": NEVER,
    "returned": ANEW, "refused": ANEW, "in_doubt": NEVER, "held": NEVER, "dismissed": NEVER,
}  # fmt: skip
"""What became of a letter by one plan -> how many of it another sends that was made, in the order of MADE."""


@pytest.mark.parametrize("state", OF_TWO)
@pytest.mark.parametrize("made", MADE)
def test_of_two_plans_of_one_letter_the_second_sends_what_nobody_has_sent(
    replay: Replaying, made: str, state: str
) -> None:
    when, wanted = MADE[made]
    first = replay.planned(1)
    second = replay.plan(**wanted) if when == "before" else ""
    if when == "meanwhile":  # the ledger was read, and the letters are looked at
        replay.queue.when_asked = lambda: bring(replay, first, state)
    else:
        bring(replay, first, state)
    second = second or replay.plan(**wanted)
    sent = OF_TWO[state][[*MADE].index(made)]
    assert replay.apply(second).sent == sent
    assert [replay.apply(one).sent for one in (first, second, first)] == [0, 0, 0]
    told = "planned" if state == "resolved" else state
    if made == "before":
        assert replay.states(second) == {"confirmed" if sent else told: 1}


def test_what_was_replayed_is_known_when_its_broker_gets_another_name(replay: Replaying) -> None:
    shop = replay.config.brokers["shop"]
    for number, key in enumerate(("message_id", "header:order")):
        fill(replay.store, 1, start=number, key=f"order-{number}")
        for name in ("shop", "shop-eu"):
            source = replace(replay.config.sources["orders"], broker=name, key=key)
            replay.config = replace(replay.config, brokers={name: shop}, sources={"orders": source})
            replay.apply(replay.plan(where=f"record_id = '{number:032x}'"))
        assert len(replay.queue.arrived()) == number + 1


@pytest.mark.parametrize("at", [1, 10, 11, 30, 31, 100])
@pytest.mark.parametrize("error", [ConnectionLost, KeyboardInterrupt, RuntimeError, BrokerError])
def test_wherever_it_breaks_it_can_be_mended(replay: Replaying, at: int, error: type[BaseException]) -> None:
    plan = replay.planned(100, witness=True)
    replay.queue.dies_at, replay.queue.error = at, error
    try:
        run = replay.apply(plan)
    except error:
        run = None
    assert (run is not None) == issubclass(error, BrokerError)
    assert "sending" not in replay.states(plan)
    assert replay.states(plan).get("in_doubt", 0) <= WINDOW
    replay.queue.dies_at = None
    replay.apply(plan)
    assert replay.states(plan).get("planned", 0) == 0
    replay.reconcile(plan)
    replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 100}
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


@pytest.mark.parametrize("error", [ConnectionLost, KeyboardInterrupt])
def test_what_was_given_and_never_written_is_planned(replay: Replaying, error: type[BaseException]) -> None:
    plan = replay.planned(100)
    replay.queue.dies_at, replay.queue.buffer, replay.queue.error = 20, 3, error
    with suppress(KeyboardInterrupt):
        run = replay.apply(plan)
        assert (run.sent, run.lost) == (17, ["shop: the broker is gone"])
    assert replay.states(plan) == {"in_doubt": 17, "planned": 83}
    assert [entry.key for entry in replay.ledger.entries(plan, "in_doubt")] == replay.queue.arrived()
    replay.queue.dies_at = None
    assert replay.apply(plan).sent == 83
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


def test_one_letter_that_nobody_can_tell_of_stays_in_doubt_and_the_rest_goes(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection ends at its third letter, which is alone in flight."""
    monkeypatch.setattr(QueueFile, "most", property(lambda _: 1, lambda *_: None), raising=False)
    plan = replay.planned(6)
    replay.queue.dies_at = 3
    run = replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 4, "in_doubt": 2}
    assert len(run.lost) == 2
    for entry in replay.ledger.entries(plan, "in_doubt"):
        assert any(why.startswith(f"shop: the broker is gone; letter {entry.record_id}") for why in run.lost)


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_ends_each_connection_is_tried_twice_unless_the_broker_is_gone(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    runs, publisher = count(1), QueueFile.publisher

    def leaving(queue: QueueFile, request: SendRequest) -> QueueFile:
        run = next(runs)
        if is_gone and run > 1:
            raise Unreachable("nobody listens")
        queue.anchor = {f"run {run}": 0}
        return publisher(queue, request)

    monkeypatch.setattr(QueueFile, "publisher", leaving)
    plan = replay.planned(6)
    replay.queue.dies_at = 1
    _, second = replay.apply(plan).lost
    assert (second == "shop: nobody listens") == is_gone
    assert replay.states(plan) == {"in_doubt": 2 - is_gone, "planned": 4 + is_gone}
    known = {"run 1"} if is_gone else {"run 1", "run 2"}
    assert known <= planfile.bounds_of(replay.store, plan, "shop").keys()


def test_a_ledger_that_fails_in_the_middle(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replay.planned(100)
    calls = iter(range(1000))
    claim = SqlLedger.claim

    def failing(*arguments: object) -> set[str]:
        if next(calls) == 3:
            raise ArchiveError("database or disk is full")
        return claim(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlLedger, "claim", failing)
    with pytest.raises(ArchiveError, match="disk is full"):
        replay.apply(plan)
    assert replay.states(plan) == {"confirmed": 30, "planned": 70}
    replay.apply(plan)
    assert Counter(replay.queue.arrived()) == Counter(replay.keys(plan))


def test_stop_leaves_the_rest_planned_and_nothing_in_flight(replay: Replaying) -> None:
    plan = replay.planned(100, rate=100.0)

    def ask(run: Run) -> None:
        if run.sent >= 10:
            request_stop(replay.store, plan)

    run = replay.apply(plan, progress=ask)
    assert run.stopped
    assert 10 <= run.sent < 100
    assert replay.states(plan) == {"confirmed": run.sent, "planned": 100 - run.sent}
    assert replay.apply(replay.plan()).sent == 100 - run.sent


@pytest.mark.parametrize(("count", "rate", "asked", "least"), [
    (10, 20.0, None, 0.25), (100, 200.0, None, 0.25), (60, 40.0, 15.0, 2.0), (60, 40.0, 1000.0, 1.2),
])  # fmt: skip
def test_a_rate_is_kept_and_lowered_while_a_plan_is_sent_and_never_raised_above_the_plans(
    replay: Replaying, count: int, rate: float, asked: float | None, least: float
) -> None:
    plan = replay.planned(count, rate=rate)
    request_rate(replay.store, plan, 0.1)  # of an earlier run, so void
    run = replay.apply(plan, progress=lambda _: request_rate(replay.store, plan, asked or rate))
    assert run.sent == count
    assert least < run.seconds < SOON


@each_row("asked", [b"", b"fast", b"nan", b"inf", b"-1", b"0", b"\xff", b"1e999"])
def test_what_is_no_rate_changes_nothing(replay: Replaying, asked: bytes) -> None:
    replay.store.put("plans/p.rate", asked)
    stop = Stop(replay.store, "p")
    assert (stop(), stop.rate) == (False, None)


def test_a_request_to_stop_an_earlier_run_is_void_and_a_second_apply_is_busy(replay: Replaying) -> None:
    plan = replay.planned(5)
    request_stop(replay.store, plan)
    with replay.store.lock(f"plan-{plan}"), pytest.raises(Busy, match=f"pid {os.getpid()} on "):
        replay.apply(plan)
    assert replay.apply(plan).sent == 5


def test_what_was_taken_away_is_not_sent(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replay.planned(10)
    monkeypatch.setattr("dlq.replay.ledger.claims.FRESH_SHARE", 0.0)
    keys, renew = replay.keys(plan), SqlLedger.renew

    def expire_one(ledger: SqlLedger, held: Sequence[str]) -> set[str]:
        ledger.resolve([keys[4]], "in_doubt", "the lease ended before the answer came")
        return renew(ledger, held)

    monkeypatch.setattr(SqlLedger, "renew", expire_one)
    assert replay.apply(plan).sent == 9
    assert keys[4] not in replay.queue.arrived()
    assert replay.states(plan) == {"confirmed": 9, "planned": 1}, "who never wrote it is in no doubt"


def test_what_waits_for_its_turn_stays_ours_however_slow_the_rate(
    replay: Replaying, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, plan = MovingClock(), replay.planned(3, rate=0.02)

    def sleep(seconds: float) -> None:
        clock.forward(seconds)
        replay.ledger.expire()  # another run begins

    def uptime() -> float:
        return clock.moment / 1_000_000

    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=uptime, sleep=sleep))
    monkeypatch.setattr(claims, "uptime", uptime)
    with closing(SqlLedger(File(tmp_path / "slow.db"), 30.0, clock)) as replay.ledger:
        replay.apply(plan)
        assert replay.states(plan) == {"confirmed": 3}


@pytest.mark.parametrize("harm", ["segment", "manifest", "digest", "other letters"])
def test_a_changed_archive_is_refused_before_anything_is_sent(replay: Replaying, harm: str) -> None:
    plan = replay.planned(5)
    [manifest] = manifests.list_committed(replay.store)
    if harm == "digest":
        manifests.write(replay.store, replace(manifest, digest="another"))
    elif harm == "other letters":
        fill(replay.store, 5, start=10)
        [other] = [m for m in manifests.list_committed(replay.store) if m.stem != manifest.stem]
        replay.store.put(manifest.segment, replay.store.get(other.segment))
    else:
        replay.store.delete(manifest.segment if harm == "segment" else manifests.name_of(manifest.stem))
    with pytest.raises((ArchiveError, UsageError), match=r"no longer in the archive|is not the letter"):
        replay.apply(plan)
    assert replay.queue.arrived() == []


def test_what_is_dismissed_after_planning_is_not_sent(replay: Replaying) -> None:
    plan = replay.planned(5)
    [_, _, one, *_] = planfile.letters(replay.store, plan)
    dismissals.dismiss(replay.ledger, [one.record_id], "stale")
    assert replay.states(plan) == {"planned": 4, "dismissed": 1}
    assert (replay.apply(plan).sent, len(replay.queue.arrived())) == (4, 4)
    assert replay.states(plan) == {"confirmed": 4, "dismissed": 1}
    assert replay.queue.forgotten == [(plan, False)], "nothing of it is open"
    dismissals.undo(replay.ledger, [one.record_id])
    assert replay.states(plan) == {"confirmed": 4, "planned": 1}
    assert replay.apply(plan).sent == 1


@pytest.mark.parametrize("window", [2, 3, 10, 40, 1000, None])
def test_claimed_and_in_flight_are_never_more_than_the_window(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    """Without one the broker's own counts."""
    monkeypatch.setattr(QueueFile, "window", 16)
    replay.config = replace(replay.config, replay=replace(replay.config.replay, window=window))
    plan, open_at_once = replay.planned(120), []
    replay.apply(plan, progress=lambda _: open_at_once.append(replay.states(plan).get("sending", 0)))
    assert replay.states(plan) == {"confirmed": 120}
    assert max(open_at_once) <= (window or 16)


def test_a_plan_that_is_confirmed_is_done_whatever_it_left_on_the_broker(replay: Replaying) -> None:
    plan = replay.planned(5)
    replay.queue.keeps_what_was_left = True
    run = replay.apply(plan)
    assert (run.outcomes, run.lost) == ({"confirmed": 5}, [])
    assert f"the broker is gone; `dlq replay reconcile {plan}` tries again" in run.notes[0]
    replay.queue.keeps_what_was_left = False
    replay.reconcile(plan)
    assert replay.queue.forgotten == [(plan, False)]


def test_the_witness_goes_when_nothing_is_open(replay: Replaying) -> None:
    plan = replay.planned(5, witness=True)
    replay.queue.dies_at = 3
    replay.apply(plan)
    replay.reconcile(plan)
    assert replay.queue.forgotten == []
    replay.queue.dies_at = None
    replay.apply(plan)
    assert replay.queue.forgotten == [(plan, True)]
