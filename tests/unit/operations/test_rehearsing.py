"""A sample of a plan goes to a private place, and what is fixed there is what a later plan takes."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.builders import in_file, memory_sources
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, spring_headers, told_of, waiting_for
from support.rows import each_row
from support.waiting import PATIENCE, eventually

from dlq.cli.app import run
from dlq.cli.context import Context
from dlq.connectors.memory import MemoryBroker, broker_at
from dlq.core import patience
from dlq.core.errors import UsageError
from dlq.operations.outcome import ExitCode
from dlq.operations.plans import PlanWanted, make_plan
from dlq.operations.pulling import PullWanted, pull_sources
from dlq.operations.rehearsing import Rehearsed, clean_rehearsal, rehearse_plan, take_passed
from dlq.operations.rehearsing import Wanted as Sample
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay import ledger, rehearsal
from dlq.replay.rehearsal import Tried, account, sample
from dlq.replay.wanted import Wanted

ANY = PlanWanted(how=Wanted(any_advice=True, to="queue:orders"))


def dead(failure: str, number: int) -> dict[str, Any]:
    headers = {
        **spring_headers(failure, "orders"),
        "x-death": [{"reason": "rejected", "queue": "orders", "time": f"2026-11-02T03:00:{number:02}Z"}],
    }
    return {
        "broker_kind": "rabbitmq",
        "message_id": f"{failure}{number}",
        "headers": headers,
        "body_text": failure,
    }


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


@pytest.fixture
def workspace(broker: MemoryBroker) -> Workspace:
    return open_workspace(Context().settings, Notes())


@pytest.fixture
def plan(workspace: Workspace) -> str:
    assert pull_sources(workspace, PullWanted()).code is ExitCode.DONE
    return make_plan(workspace, ANY).header.plan


Fate = Callable[[str, int], str]
"""What becomes of a copy of a failure, and of the how many-th: pass, die, stay, or lose (its marks)."""


class Consumer:
    """Takes from the private queue of a plan; who waits for the end is told that there is one."""

    def __init__(self, broker: MemoryBroker, place: str, fate: Fate) -> None:
        self.broker, self.place, self.fate = broker, f"dlq.rehearsal.{place}", fate
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


def rehearse(workspace: Workspace, consumer: Consumer, plan: str, **wanted: Any) -> Rehearsed:
    consumer.thread.start()
    try:
        return rehearse_plan(workspace, plan, Sample(**{"seconds": PATIENCE, **wanted}))
    finally:
        consumer.thread.join()


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


def test_a_later_plan_takes_exactly_what_the_consumer_has_fixed(
    workspace: Workspace, broker: MemoryBroker, plan: str
) -> None:
    broken = {"stock": "die", "tax": "die"}
    consumer = Consumer(broker, plan, lambda failure, nth: broken.get(failure, "pass"))
    done = rehearse(workspace, consumer, plan, per_failure=3)
    assert fixed(done.document) == {"gateway", "address", "login"}
    assert counts(done.document, "gateway") == (3, 3, 0, 0)
    assert counts(done.document, "stock") == (3, 0, 3, 0)
    assert told_of(done.document, ["stock"]) == {"poison_ack"}
    assert (done.code, done.document["removed"]) == (ExitCode.PARTLY, True)
    assert done.document["target"] == {"name": "queue:orders", "before": 1, "after": 1}
    made = make_plan(workspace, take_passed(workspace, plan, PlanWanted()))
    assert (made.header.letters, made.header.to) == (3 * OF_EACH, "queue:orders")
    assert {copy["headers"]["dlq_rehearsal"] for copy in consumer.copies} == {done.document["rehearsal"]}
    assert not any("x-exception-message" in copy["headers"] for copy in consumer.copies)


def test_no_copy_counts_as_sent_and_nothing_of_it_stays(
    workspace: Workspace, broker: MemoryBroker, plan: str
) -> None:
    consumer = Consumer(broker, plan, lambda failure, nth: "pass")
    assert rehearse(workspace, consumer, plan).code is ExitCode.DONE
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        assert not any(book.counts(plan).values())
    assert {name for (name,) in broker.sql("SELECT name FROM queues")} == {"orders", "orders.dlq"}
    assert broker.depth("orders") == 1


def test_what_stays_or_comes_back_without_its_marks_has_not_passed(
    workspace: Workspace, broker: MemoryBroker, plan: str
) -> None:
    hangs = Consumer(broker, plan, lambda failure, nth: "stay" if (failure, nth) == ("tax", 2) else "pass")
    with waiting_for(lambda _stage: broker.depth(hangs.place) == 1):
        done = rehearse(workspace, hangs, plan, seconds=0.0)
    assert fixed(done.document) == {*FAILURES} - {"tax"}
    assert counts(done.document, "tax") == (OF_EACH, OF_EACH - 1, 0, 1)
    loses = Consumer(
        broker, f"{plan}.2", lambda failure, nth: "lose" if (failure, nth) == ("tax", 2) else "pass"
    )
    done = rehearse(workspace, loses, plan)
    assert (fixed(done.document), done.document["untold"]) == (set(), 1)
    with pytest.raises(UsageError, match="passed its rehearsal entirely"):
        take_passed(workspace, plan, PlanWanted())


@pytest.mark.parametrize("gone", ["", ".dlq"])
def test_where_a_private_place_went_nothing_has_passed(
    workspace: Workspace, broker: MemoryBroker, plan: str, gone: str
) -> None:
    place = f"dlq.rehearsal.{plan}"

    def lose_a_place(failure: str, nth: int) -> str:
        broker.sql("DELETE FROM queues WHERE name = ?", [f"{place}{gone}"])
        return "pass"

    with waiting_for(lambda stage: not stage.is_whole()):
        done = rehearse(workspace, Consumer(broker, plan, lose_a_place), plan, per_failure=2, seconds=0.0)
    assert fixed(done.document) == set()
    assert isinstance(workspace.listener, Notes)
    assert any("a private place is gone" in problem for problem in workspace.listener.problems)
    assert done.code is ExitCode.PARTLY


def test_a_copy_that_a_pull_has_captured_goes_into_no_plan(
    workspace: Workspace, broker: MemoryBroker, plan: str
) -> None:
    broker.put("orders.dlq", dead("gateway", 9) | {"headers": {"dlq_rehearsal": "x"}})
    pull_sources(workspace, PullWanted())
    assert make_plan(workspace, ANY).header.left_out == {"rehearsal": 1}


def test_what_a_killed_rehearsal_leaves_is_found_by_its_name_and_removed(
    workspace: Workspace, broker: MemoryBroker, plan: str
) -> None:
    place = f"dlq.rehearsal.{plan}"
    killed = preloaded.start(["replay", "rehearse", plan], Path.cwd())
    eventually(lambda: broker.sql("SELECT 1 FROM letters WHERE queue = ?", [place]))
    killed.kill()
    killed.wait()
    assert broker.depth(place) > 0
    book = rehearsal.load(workspace.store, plan)
    assert book is not None
    assert (book.place, book.removed) == (place, False)
    with pytest.raises(UsageError, match="no finished rehearsal"):
        take_passed(workspace, plan, PlanWanted())
    done = clean_rehearsal(workspace, plan)
    assert done.document["rehearsal"] == book.rehearsal
    assert {name for (name,) in broker.sql("SELECT name FROM queues")} == {"orders", "orders.dlq"}
    broker.put(f"{place}.dlq", dead("gateway", 1))  # of a killed run, and nobody has cleaned
    consumer = Consumer(broker, f"{plan}.2", lambda failure, nth: "pass")
    done = rehearse(workspace, consumer, plan)
    assert (done.document["place"], done.document["untold"]) == (f"{place}.2", 0)
    broker.put(place, dead("gateway", 1))  # a consumer that still runs has made it again
    clean_rehearsal(workspace, plan)
    assert {name for (name,) in broker.sql("SELECT name FROM queues")} == {"orders", "orders.dlq"}


def test_a_plan_for_several_consumers_is_not_rehearsed(
    workspace: Workspace, broker: MemoryBroker, plan: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broker.declare("payments")
    letter = dead("gateway", 9)
    letter["headers"] = {"x-death": [{"reason": "rejected", "queue": "payments"}]}
    broker.put("orders.dlq", letter)
    pull_sources(workspace, PullWanted())
    several = make_plan(workspace, ANY._replace(how=Wanted(any_advice=True))).header
    assert len(several.targets) == 2, several.targets
    assert run(["replay", "rehearse", several.plan]) == ExitCode.USAGE
    assert "make a plan for each" in capfd.readouterr().err
