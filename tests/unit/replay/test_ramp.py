"""Growing steps: a consumer that still fails is found with a handful of letters, a healthy one gets all."""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.archives import change_body, letter
from support.builders import memory_sources
from support.replaying import Replaying, brokers, fill
from support.waiting import SOON

from dlq.archive import manifests, segments, views
from dlq.capture.pull import PullResult
from dlq.cli.context import Context
from dlq.connectors.base import Consumption, Reached, consumption_of
from dlq.core.clock import now
from dlq.core.errors import ArchiveError, Busy, DlqError, HarmRefused, Unreachable
from dlq.core.headers.provenance import REPLAY_ID, REPLAY_LAP
from dlq.core.runtime import patience
from dlq.operations.replays import ramping
from dlq.replay import came_back
from dlq.replay import ledger as ledgers
from dlq.replay.plans import planfile
from dlq.replay.plans.destinations import Destination
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.apply import applying
from dlq.replay.runs.consumed import Standing
from dlq.replay.runs.pace import Stop, request_stop
from dlq.replay.runs.ramp import Ramp, Watch, insist, places_of, ramp

MAX_SHARE = 0.1


class Consumer:
    """Takes what arrived; what it fails on dies again and is captured by the next look. The broker tells how
    many it has acknowledged; `takes` says how many it takes at all."""

    def __init__(self, replay: Replaying, fails: Callable[[int], bool], takes: int = 1_000_000) -> None:
        self.replay, self.fails, self.takes = replay, fails, takes
        self.seen = 0

    def standing(self, places: Collection[Destination]) -> Standing:
        arrived = len(self.replay.queue.arrived())
        taken = min(arrived, self.takes)
        dead = sum(map(self.fails, range(taken)))
        return {place: [Consumption("orders", arrived - taken, 1, taken - dead)] for place in places}

    def look(self, plan: str) -> Counter[str]:
        arrived = self.replay.queue.arrived()
        dead = [
            letter(10_000 + n, headers={REPLAY_ID: arrived[n], REPLAY_LAP: "1"}, captured_at=now())
            for n in range(self.seen, len(arrived))
            if self.fails(n)
        ]
        if dead:
            segments.commit(self.replay.store, "orders", f"look{self.seen}", 0, "drain", dead, {})
        self.seen = len(arrived)
        return came_back.count(self.replay.store, self.replay.config, plan)


def climb(
    replay: Replaying,
    plan: str,
    fails: Callable[[int], bool] = lambda _number: False,
    wait: float = 0.0,
    told: list[str] | None = None,
    kind: type[Consumer] = Consumer,
    **consumer: Any,
) -> Ramp:
    who = kind(replay, fails, **consumer)
    stop, letters = Stop(replay.store, plan), [*planfile.letters(replay.store, plan)]
    tell = [].append if told is None else told.append
    watch = Watch(who.standing, lambda: who.look(plan), wait, MAX_SHARE, stop, tell)
    with (
        brokers(replay.config, replay.queue) as opened,
        applying(replay.store, replay.config, plan, opened, replay.ledger, stop) as send,
    ):
        return ramp(send, watch, plan, len(letters), places_of(letters))


def test_a_healthy_consumer_gets_all_in_growing_steps(replay: Replaying) -> None:
    plan = replay.planned(500)
    done = climb(replay, plan)
    assert [step.sent for step in done.steps] == [1, 10, 100, 389]
    assert {step.evidence for step in done.steps} == {"consumed"}
    assert (done.harm, done.stopped_by, done.run.sent, done.run.skipped) == (0, None, 500, 0)
    assert replay.states(plan) == {"confirmed": 500}


def test_a_consumer_that_fails_a_third_is_found_within_the_first_steps(replay: Replaying) -> None:
    plan = replay.planned(300)
    done = climb(replay, plan, lambda n: n % 3 == 2)
    assert [(step.sent, step.came_back) for step in done.steps] == [(1, 0), (10, 3)]
    assert (done.harm, done.stopped_by) == (3, "harm")
    assert replay.states(plan) == {"confirmed": 11, "planned": 289}
    done = climb(replay, plan, lambda n: n % 20 == 19)  # a few that die again do not stop it
    assert (done.harm, done.stopped_by, done.run.sent) == (15, None, 289)


def test_a_later_ramp_of_the_same_plan_goes_on_where_it_was_stopped(replay: Replaying) -> None:
    plan = replay.planned(100)
    climb(replay, plan, lambda _n: True)
    assert came_back.count(replay.store, replay.config, "another plan").total() == 0
    done = climb(replay, plan)
    assert (done.run.sent, done.run.skipped, done.harm) == (99, 1, 0)
    assert sorted(replay.queue.arrived()) == sorted(replay.keys(plan))
    done = climb(replay, plan, lambda _n: True)
    assert (done.steps, done.run.skipped, done.stopped_by) == ([], 100, None)


def test_a_later_ramp_asks_for_what_was_sent_many_at_once(
    replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, claimed, claim = replay.planned(300), list[int](), replay.ledger.claim
    stop = Stop(replay.store, plan)
    with (
        brokers(replay.config, replay.queue) as opened,
        applying(replay.store, replay.config, plan, opened, replay.ledger, stop) as send,
    ):
        send(298)

    def note(of: str, letters: Sequence[Letter], *more: Any) -> set[str]:
        claimed.append(len(letters))
        return claim(of, letters, *more)

    monkeypatch.setattr(replay.ledger, "claim", note)
    done = climb(replay, plan)
    assert ([step.sent for step in done.steps], done.run.skipped) == ([1, 1], 298)
    assert sum(claimed) == 2


def test_a_damaged_segment_is_named_where_what_came_back_is_looked_for(replay: Replaying) -> None:
    fill(replay.store, 3, headers={REPLAY_ID: "x"}, captured_at=now())
    plan = replay.plan()
    replay.apply(plan)
    [manifest] = manifests.list_committed(replay.store)
    content = replay.store.get(manifest.segment)
    start = -8 - int.from_bytes(content[-8:-4], "little")
    replay.store.put(manifest.segment, b"PAR1" + b"\0" * (len(content) + start - 4) + content[start:])
    replays = ledgers.as_arrow(replay.config.ledger, replay.store)
    for look in (
        lambda: came_back.count(replay.store, replay.config, plan),
        lambda: came_back.newest(views.connect(replay.store, replays), plan, 1),
        lambda: came_back.find_among(replay.store, {"x"}, 0),
    ):
        with pytest.raises(ArchiveError, match="cannot read the archive"):
            look()


def test_letters_that_do_not_go_are_named_and_end_no_ramp_before_the_others_went(replay: Replaying) -> None:
    plan = replay.planned(200)
    changed = [one.record_id for one in planfile.letters(replay.store, plan) if one.number in (0, 4)]
    for record_id in changed:
        change_body(replay.store, record_id, b"somebody else's")
    replay.queue.fate = lambda number: "unsent" if number == 5 else "confirmed"
    done = climb(replay, plan)
    assert [step.sent for step in done.steps] == [1, 9, 100, 87]
    assert (done.run.changed, done.run.sent, len(done.run.refused)) == (changed, 197, 1)
    assert replay.states(plan) == {"confirmed": 197, "planned": 1, "refused": 2}
    assert (climb(replay, plan).steps, replay.states(plan)["planned"]) == ([], 1)


@pytest.mark.parametrize("at", [1, 5, 50])
def test_a_broker_that_fails_ends_the_ramp(replay: Replaying, at: int) -> None:
    plan = replay.planned(200)
    replay.queue.dies_at = at
    done = climb(replay, plan)
    assert [why.partition(";")[0] for why in done.run.lost] == ["shop: the broker is gone"]
    assert replay.states(plan)["planned"] > 0


def test_stop_ends_the_wait(replay: Replaying) -> None:
    plan = replay.planned(200)

    def fails(_number: int) -> bool:
        request_stop(replay.store, plan)
        return False

    done = climb(replay, plan, fails, wait=0.6)
    assert done.run.stopped
    assert done.run.sent < 200
    assert replay.states(plan)["confirmed"] == done.run.sent


class LiveTraffic(Consumer):
    """Reads a log to which others send all the time: it never reaches the end. With `takes` the letters lie
    in another partition."""

    def standing(self, places: Collection[Destination]) -> Standing:
        arrived = len(self.replay.queue.arrived())
        self.seen += 1
        busy, other = Reached(arrived + self.seen - 1, arrived + self.seen), Reached(0, 0)
        if self.takes == 0:
            busy, other = Reached(self.seen - 1, self.seen), Reached(0, arrived)
        return {place: [consumption_of("billing", {"0": busy, "1": other}, 1, 0.0)] for place in places}

    def look(self, _plan: str) -> Counter[str]:
        return Counter()


@pytest.mark.parametrize(("takes", "sent"), [(1_000_000, [1, 2]), (0, [1])])
def test_a_log_counts_up_to_where_it_ended_behind_the_letters(
    replay: Replaying, takes: int, sent: list[int]
) -> None:
    done = climb(replay, replay.planned(3), wait=2.0, kind=LiveTraffic, takes=takes)
    assert [step.sent for step in done.steps] == sent
    assert done.stopped_by == (None if takes else "no_evidence")


class OneOfTwo(Consumer):
    """Of two consumers one leaves the last letter of its queue `bills` there."""

    def standing(self, places: Collection[Destination]) -> Standing:
        arrived = self.replay.queue.arrived()
        [plan] = planfile.ids(self.replay.store)
        going = {one.key: one.target.name for one in planfile.letters(self.replay.store, plan)}
        at = Counter(map(going.__getitem__, arrived))
        dead = sum(map(self.fails, range(len(arrived))))
        done = {"orders": at["orders"] - dead, "bills": max(0, at["bills"] - 1)}
        left = {"orders": 0, "bills": min(1, at["bills"])}
        return {place: [Consumption(n := place[1].name, left[n], 1, done[n])] for place in places}


def test_a_letter_that_came_back_is_missing_where_it_went_alone(replay: Replaying) -> None:
    fill(replay.store, 6, None)
    fill(replay.store, 5, None, start=6, origin="bills")
    done = climb(replay, replay.plan(any_advice=True), lambda n: n == 3, kind=OneOfTwo)
    assert [(step.sent, step.came_back, step.evidence) for step in done.steps] == [
        (1, 0, "consumed"), (10, 1, "waiting"),
    ]  # fmt: skip
    assert (done.harm, done.stopped_by) == (1, "no_evidence")


@pytest.mark.parametrize(("takes", "sent"), [(0, [1]), (6, [1, 10])])
def test_a_consumer_that_dies_stops_the_ramp(replay: Replaying, takes: int, sent: list[int]) -> None:
    done = climb(replay, replay.planned(50), takes=takes)
    assert [step.sent for step in done.steps] == sent
    assert (done.stopped_by, done.run.sent) == ("no_evidence", sum(sent))
    assert takes or (done.steps[0].evidence == "waiting" and "1 wait in orders (1 consumer)" in done.why)


@pytest.mark.parametrize("asked", ["standing", "look"])
@pytest.mark.parametrize("error", [Busy("source-orders is locked by pid 7"), Unreachable("no management")])
def test_what_is_held_or_away_for_a_moment_in_the_middle_ends_no_ramp(
    replay: Replaying, asked: str, error: DlqError, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, errors = getattr(Consumer, asked), [error, error]

    def answer(who: Consumer, *what: Any) -> Any:
        if errors and who.replay.queue.arrived():
            raise errors.pop()
        return ask(who, *what)

    monkeypatch.setattr(patience, "RECHECK", 0.01)
    monkeypatch.setattr(Consumer, asked, answer)
    done = climb(replay, replay.planned(11))
    assert (done.stopped_by, done.run.sent, errors) == (None, 11, [])


@pytest.mark.parametrize(("row", "error"), [("BUSY", Busy("held")), ("RESTART", Unreachable("gone"))])
def test_what_is_held_or_away_for_too_long_ends_it(
    row: str, error: DlqError, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def fail() -> None:
        asked.append(1)
        raise error

    monkeypatch.setattr(patience, "RECHECK", 0.01)
    monkeypatch.setattr(patience, row, 0.05)
    with pytest.raises(type(error)):
        insist(fail, lambda: False)
    assert len(asked) > 1
    with pytest.raises(type(error)):
        insist(fail, lambda: asked.append(1) is None)


def test_a_ramp_waits_no_longer_than_its_letters_need_and_says_for_what_and_until_when(
    replay: Replaying,
) -> None:
    """Nothing but the time that a rejected letter may be on its way."""
    plan, told, started = replay.planned(11), list[str](), time.monotonic()
    assert climb(replay, plan, wait=60, told=told).stopped_by is None
    assert time.monotonic() - started < SOON
    assert told[0].startswith("step 1 of 2: 1 of 11 sent; waiting for ")
    awaited = r"waiting for letters that come back until \d\d:\d\d:\d\d; 0 came back; 0 wait in orders"
    assert re.search(f"step 2 of 2: 11 of 11 sent; {awaited}", told[-1])


def test_a_source_whose_copy_is_refused_or_shows_too_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "dlq.toml"
    config.write_text(f'archive = "{tmp_path}/archive"\n{memory_sources("memory:ramp", "orders")}')
    context = Context(str(config))

    def refuse(*_arguments: Any) -> Any:
        raise HarmRefused("use --mode drain, or insist with --force")

    def show_few(*_arguments: Any) -> PullResult:
        return PullResult("orders", "pull", "copy", 500, captured=400, left=100)

    for pull, why in ((refuse, "is refused"), (show_few, "does not show all")):
        monkeypatch.setattr(ramping, "pull", pull)
        with pytest.raises(HarmRefused, match=f'a copy of it {why} .*set mode = "drain" for it') as refused:
            ramping.look_again(context.workspace, context.workspace.sources(["orders"]))
        assert "--force" not in str(refused.value)
