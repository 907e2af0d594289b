"""A sample of a plan goes to a private place, and what is fixed there is what a later plan takes."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import preloaded
from support.builders import in_file, memory_sources
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, spring_headers, told_of, waiting_for
from support.rows import each_row
from support.waiting import PATIENCE, eventually

from dlq.cli.app import run
from dlq.cli.context import Context
from dlq.connectors.base import Outgoing, Sent
from dlq.connectors.memory import MemoryBroker, MemoryReading, broker_at
from dlq.core.errors import UsageError
from dlq.core.runtime import patience
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.outcome import ExitCode
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.replays.rehearsing import Rehearsed, clean_rehearsal, rehearse_plan, take_passed
from dlq.operations.replays.rehearsing import Wanted as Sample
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay import ledger
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs import rehearsal
from dlq.replay.runs.rehearsal import Tried, account, look, sample

ANY = PlanWanted(how=Wanted(any_advice=True, to="queue:orders"))


def dead(failure: str, number: int) -> dict[str, Any]:
    death = {"reason": "rejected", "queue": "orders", "time": f"2026-11-02T03:00:{number:02}Z"}
    headers = {**spring_headers(failure, "orders"), "x-death": [death]}
    told = {"message_id": f"{failure}{number}", "headers": headers, "body_text": failure}
    return {"broker_kind": "rabbitmq", **told}


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on its way within the embedded broker."""
    monkeypatch.setattr(patience, "DEAD_LETTERED", 0.0)
    monkeypatch.setattr(patience, "RECHECK", 0.05)


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dlq.toml").write_text(memory_sources(in_file(tmp_path), "orders"))
    broker = broker_at(in_file(tmp_path))
    broker.put("orders", {"broker_kind": "rabbitmq"})
    broker.put("orders.dlq", *(dead(failure, n) for failure in FAILURES for n in range(OF_EACH)))
    return broker


class Stage:
    """A workspace with a plan of all that lies in its broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker, self.workspace = broker, open_workspace(Context().settings, Notes())
        pull_sources(self.workspace, PullWanted())
        self.plan = make_plan(self.workspace, ANY).header.plan
        self.place = f"dlq.rehearsal.{self.plan}"

    def queues(self) -> set[str]:
        return {name for (name,) in self.broker.sql("SELECT name FROM queues")}

    def rehearse(self, consumer: "Consumer", **wanted: Any) -> Rehearsed:
        consumer.thread.start()
        try:
            return rehearse_plan(self.workspace, self.plan, Sample(**{"seconds": PATIENCE, **wanted}))
        finally:
            consumer.thread.join()


@pytest.fixture
def stage(broker: MemoryBroker) -> Stage:
    return Stage(broker)


Fate = Callable[[str, int], str]
"""What becomes of a copy of a failure, and of the how many-th: pass, die, stay, or lose (its marks)."""


class Consumer:
    """Takes from the private queue of a plan; who waits for the end is told that there is one."""

    def __init__(self, stage: Stage, fate: Fate, place: str = "") -> None:
        self.broker, self.place, self.fate = stage.broker, f"{stage.place}{place}", fate
        self.copies: list[dict[str, Any]] = []
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        sql, seen = self.broker.sql, 0
        eventually(lambda: sql("SELECT 1 FROM queues WHERE name = ?", [self.place]))
        while sql("SELECT 1 FROM queues WHERE name = ?", [self.place]):
            ask = "SELECT number, document FROM letters WHERE queue = ? AND number > ? ORDER BY number"
            for number, text in sql(ask, [self.place, seen]):
                seen = number
                self.take(number, json.loads(text))

    def take(self, number: int, copy: dict[str, Any]) -> None:
        self.copies.append(copy)
        nth = sum(one["body_text"] == copy["body_text"] for one in self.copies)
        fate = self.fate(copy["body_text"], nth)
        if fate == "stay":
            return
        self.broker.sql("DELETE FROM letters WHERE number = ?", [number])
        if fate == "die":
            copy["headers"]["x-death"] = [{"reason": "rejected", "queue": self.place, "count": 1}]
            self.broker.put(f"{self.place}.dlq", copy)
        elif fate == "lose":
            self.broker.put(f"{self.place}.dlq", {**copy, "headers": {}})


@each_row("unseen, passed", [(0, True), (1, False), (None, False)])
def test_what_may_have_died_unseen_has_not_passed(unseen: int | None, passed: bool) -> None:
    told = SimpleNamespace(find_left=lambda _left: [], find_dead=lambda: ([], unseen))
    found = look(told, {"letter": "failure"}, {"letter"}, left=0)
    assert [one.has_passed for one in found.failures] == [passed]


@each_row(
    "dead, per_failure, limit, chosen",
    [
        ("", 20, 200, ""),
        ("a1 a2 a3", 20, 200, "a1 a3 a2"),
        ("a1 a2 a3 a4", 2, 200, "a1 a4"),
        ("a1 b1 a2 b2 a3", 1, 200, "a1 b1"),
        ("a1 b1 a2 b2 a3", 3, 200, "a1 b1 a3 b2 a2"),
        ("a1 a2 a3 b1", 20, 3, "a1 b1 a3"),
        ("a1 b1 c1", 20, 2, "a1 b1"),
    ],
)
def test_a_sample_has_the_oldest_and_newest_of_each_failure_first(
    dead: str, per_failure: int, limit: int, chosen: str
) -> None:
    found = sample([(one, one[0]) for one in dead.split()], per_failure, limit)
    assert found == {one: one[0] for one in chosen.split()}
    assert [*found] == chosen.split()


@each_row(
    "died, left, untold, tried",
    [
        ([], [], 0, [("a", 2, 2, 0, 0), ("b", 1, 1, 0, 0)]),
        (["a1"], [], 0, [("a", 2, 1, 1, 0), ("b", 1, 1, 0, 0)]),
        (["a1"], ["a1", "b1"], 0, [("a", 2, 1, 1, 0), ("b", 1, 0, 0, 1)]),
        (["a1", "a2"], [], 1, [("a", 2, 0, 2, 0), ("b", 1, 0, 0, 1)]),
        ([], ["b1"], 1, [("a", 2, 1, 0, 1), ("b", 1, 0, 0, 1)]),
        ([], [], 9, [("a", 2, 0, 0, 2), ("b", 1, 0, 0, 1)]),
    ],
)
def test_a_copy_of_which_nobody_knows_counts_against_each_failure_that_it_may_be_of(
    died: Sequence[str], left: Sequence[str], untold: int, tried: Sequence[tuple[Any, ...]]
) -> None:
    assert account({"a1": "a", "a2": "a", "b1": "b"}, died, left, untold) == [Tried(*one) for one in tried]


OURS = {"orders", "orders.dlq"}


def test_a_later_plan_takes_exactly_what_the_consumer_has_fixed(stage: Stage) -> None:
    broken = {"stock": "die", "tax": "die"}
    consumer = Consumer(stage, lambda failure, _nth: broken.get(failure, "pass"))
    done = stage.rehearse(consumer, per_failure=3)
    assert fixed(done.document) == {"gateway", "address", "login"}
    assert counts(done.document, "gateway") == (3, 3, 0, 0)
    assert counts(done.document, "stock") == (3, 0, 3, 0)
    assert told_of(done.document, ["stock"]) == {"poison_ack"}
    assert (done.code, done.document["removed"]) == (ExitCode.PARTLY, True)
    assert done.document["target"] == {"name": "queue:orders", "before": 1, "after": 1}
    made = make_plan(stage.workspace, take_passed(stage.workspace, stage.plan, PlanWanted()))
    assert (made.header.letters, made.header.to) == (3 * OF_EACH, "queue:orders")
    assert {copy["headers"]["dlq_rehearsal"] for copy in consumer.copies} == {done.document["rehearsal"]}
    assert not any("x-exception-message" in copy["headers"] for copy in consumer.copies)
    assert (stage.queues(), stage.broker.depth("orders")) == (OURS, 1), "nothing of it stays"
    with ledger.opened(stage.workspace.settings.ledger, stage.workspace.store) as book:
        assert not any(book.counts(stage.plan).values()), "and no copy counts as sent"


def test_what_stays_or_comes_back_without_its_marks_has_not_passed(stage: Stage) -> None:
    def second_tax(fate: str) -> Fate:
        return lambda failure, nth: fate if (failure, nth) == ("tax", 2) else "pass"

    hangs = Consumer(stage, second_tax("stay"))
    with waiting_for(lambda _stage: stage.broker.depth(hangs.place) == 1):
        done = stage.rehearse(hangs, seconds=0.0)
    assert fixed(done.document) == {*FAILURES} - {"tax"}
    assert counts(done.document, "tax") == (OF_EACH, OF_EACH - 1, 0, 1)
    done = stage.rehearse(Consumer(stage, second_tax("lose"), ".2"))
    assert (fixed(done.document), done.document["untold"]) == (set(), 1)
    with pytest.raises(UsageError, match="passed its rehearsal entirely"):
        take_passed(stage.workspace, stage.plan, PlanWanted())


def test_what_died_behind_the_end_of_a_browse_has_not_passed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = MemoryReading.receive

    def end_early(reading: MemoryReading, wait: float) -> list[Any]:
        return receive(reading, wait)[: 3 - reading.seen]

    monkeypatch.setattr(MemoryReading, "receive", end_early)
    done = stage.rehearse(Consumer(stage, lambda _failure, _nth: "die"))
    assert (fixed(done.document), done.document["untold"]) == (set(), len(FAILURES) * OF_EACH - 3)


@pytest.mark.parametrize("gone", ["", ".dlq"])
def test_where_a_private_place_went_nothing_has_passed(stage: Stage, gone: str) -> None:
    def lose_a_place(_failure: str, _nth: int) -> str:
        stage.broker.sql("DELETE FROM queues WHERE name = ?", [f"{stage.place}{gone}"])
        return "pass"

    with waiting_for(lambda rehearsed: not rehearsed.is_whole()):
        done = stage.rehearse(Consumer(stage, lose_a_place), per_failure=2, seconds=0.0)
    assert (fixed(done.document), done.code) == (set(), ExitCode.PARTLY)
    assert isinstance(stage.workspace.listener, Notes)
    assert any("a private place is gone" in problem for problem in stage.workspace.listener.problems)


def test_a_copy_that_a_pull_has_captured_goes_into_no_plan(stage: Stage) -> None:
    stage.broker.put("orders.dlq", dead("gateway", 9) | {"headers": {"dlq_rehearsal": "x"}})
    pull_sources(stage.workspace, PullWanted())
    assert make_plan(stage.workspace, ANY).header.left_out == {"rehearsal": 1}


def test_what_a_killed_rehearsal_leaves_is_found_by_its_name_and_removed(stage: Stage) -> None:
    killed = preloaded.start(["replay", "rehearse", stage.plan], Path.cwd())
    eventually(lambda: stage.broker.sql("SELECT 1 FROM letters WHERE queue = ?", [stage.place]))
    killed.kill()
    killed.wait()
    book = rehearsal.load(stage.workspace.store, stage.plan)
    assert book is not None
    assert (book.place, book.removed) == (stage.place, False)
    with pytest.raises(UsageError, match="no finished rehearsal"):
        take_passed(stage.workspace, stage.plan, PlanWanted())
    assert clean_rehearsal(stage.workspace, stage.plan).document["rehearsal"] == book.rehearsal
    assert stage.queues() == OURS
    stage.broker.put(f"{stage.place}.dlq", dead("gateway", 1))  # of a killed run, and nobody has cleaned
    done = stage.rehearse(Consumer(stage, lambda _failure, _nth: "pass", ".2"))
    assert (done.document["place"], done.document["untold"]) == (f"{stage.place}.2", 0)
    stage.broker.put(stage.place, dead("gateway", 1))  # a consumer that still runs has made it again
    clean_rehearsal(stage.workspace, stage.plan)
    assert stage.queues() == OURS


def test_a_plan_for_several_consumers_is_not_rehearsed(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.broker.declare("payments")
    death = {"reason": "rejected", "queue": "payments"}
    stage.broker.put("orders.dlq", dead("gateway", 9) | {"headers": {"x-death": [death]}})
    pull_sources(stage.workspace, PullWanted())
    several = make_plan(stage.workspace, PlanWanted(how=Wanted(any_advice=True))).header
    assert len(several.targets) == 2, several.targets
    assert run(["replay", "rehearse", several.plan]) == ExitCode.USAGE
    assert "make a plan for each" in capfd.readouterr().err


def test_what_goes_to_another_consumer_has_not_passed_though_it_died_alike(stage: Stage) -> None:
    stage.broker.declare("payments")
    other = dead("gateway", 9)
    headers = {**other["headers"], "x-death": [{"reason": "rejected", "queue": "payments"}]}
    headers |= {"x-original-routingKey": "payments"}
    plan = make_plan(stage.workspace, PlanWanted(how=Wanted(any_advice=True))).header
    assert [*plan.targets] == ["queue:orders"]
    stage.plan, stage.place = plan.plan, f"dlq.rehearsal.{plan.plan}"
    done = stage.rehearse(Consumer(stage, lambda _failure, _nth: "pass"))
    assert done.code == ExitCode.DONE
    stage.broker.put("orders.dlq", {**other, "headers": headers}, dead("gateway", 8))
    pull_sources(stage.workspace, PullWanted())
    made = make_plan(stage.workspace, take_passed(stage.workspace, stage.plan, PlanWanted())).header
    assert (made.targets, made.left_out) == (
        {"queue:orders": len(FAILURES) * OF_EACH + 1},
        {"not_rehearsed": 1},
    )


@each_row("setting, asked", [
    ("", {"in_order": "sent", "again": True, "witness": True, "check_superseded": True}),
    ("", {"check_superseded": False, "in_order": "consumed"}),
    ("in_order = true\n", {"in_order": "sent"}),
    ("in_order = true\n", {}),
])  # fmt: skip
def test_a_later_plan_is_made_as_the_rehearsed_one_was(
    broker: MemoryBroker, setting: str, asked: dict[str, Any]
) -> None:
    (Path.cwd() / "dlq.toml").write_text(memory_sources(in_file(Path.cwd()), "orders", more=setting))
    stage = Stage(broker)
    plan = make_plan(stage.workspace, PlanWanted(how=replace(ANY.how, **asked))).header.plan
    passed = [Tried("f", 2, 2, 0, 0)]
    rehearsal.write(stage.workspace.store, plan, rehearsal.Book("r", "p", "d", True, passed))
    how = take_passed(stage.workspace, plan, PlanWanted()).how
    assert how == replace(Wanted(**asked), **{name: getattr(how, name) for name in AS_REHEARSED})


AS_REHEARSED = ("to", "any_advice", "fixed", "place")


def test_where_copies_could_not_be_sent_their_failure_has_not_passed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = rehearsal.Stage.send

    def refuse_some(self: rehearsal.Stage, copies: Sequence[Outgoing]) -> list[Sent]:
        """Of the last two failures none goes, and one."""
        first = OF_EACH * (len(FAILURES) - 2)
        refused = [one for one in copies[first:] if one is not copies[-1]]
        sent = send(self, [*copies[:first], copies[-1]])
        return [*sent, *(Sent(one.number, "refused", "it is too large") for one in refused)]

    monkeypatch.setattr(rehearsal.Stage, "send", refuse_some)
    done = stage.rehearse(Consumer(stage, lambda _failure, _nth: "pass"))
    assert fixed(done.document) == {*FAILURES[:-2]}
    told = [counts(done.document, name) for name in FAILURES[-2:]]
    assert (told, done.code) == ([(OF_EACH, 0, 0, OF_EACH), (OF_EACH, 1, 0, OF_EACH - 1)], ExitCode.PARTLY)
