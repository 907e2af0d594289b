"""What operations do is what the command line does, in the name of who sits at the workspace."""

import math
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dlq.connectors.memory import broker_at
from dlq.core.errors import Busy, UsageError
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.dismissing import dismiss_letters
from dlq.operations.jsonl import export_letters, import_file
from dlq.operations.outcome import ExitCode
from dlq.operations.reading.books import list_audit, verify_books
from dlq.operations.reading.failures import (
    assign_failure,
    list_failures,
    resolve_failure,
    show_failure,
    snooze_failure,
)
from dlq.operations.reading.letters import LettersWanted, list_letters
from dlq.operations.reading.selecting import EVERY, Selection
from dlq.operations.replays.applying import (
    apply_plan,
    change_rate,
    code_of_states,
    finish,
    reconcile_plan,
    stop_plan,
)
from dlq.operations.replays.plans import (
    PlanWanted,
    approve_plan,
    make_plan,
    read_replay_status,
    why_not_apply,
)
from dlq.operations.replays.ramping import ramp_plan
from dlq.operations.workspace import Notes, Workspace
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs.apply import Run
from dlq.replay.runs.pace import Stop

ANY = Wanted(any_advice=True)


@pytest.fixture
def pulled(workspace: Workspace) -> Workspace:
    """The letters are in the archive, and classified."""
    assert pull_sources(workspace, PullWanted()).code is ExitCode.DONE
    return workspace


def approved(workspace: Workspace, how: Wanted = ANY) -> str:
    plan = make_plan(replace(workspace, name="ann"), PlanWanted(how=how)).header.plan
    approve_plan(replace(workspace, name="bob"), plan, "looked at it")
    return plan


def arrived(folder: Path) -> int:
    return broker_at(f"memory://{folder}/broker.db").depth("orders")


def test_a_pull_tells_of_each_source_and_what_its_letters_died_of(workspace: Workspace, notes: Notes) -> None:
    done = pull_sources(workspace, PullWanted())
    (row,) = done.rows
    assert (row["source"], row["captured"], row["mode"]) == ("orders", 5, "drain")
    assert row["causes"] == {"poison_ack": 4, "expired": 1}
    assert [str(line).partition(":")[0] for line in notes.lines] == ["orders"]
    with pytest.raises(UsageError, match="unknown source"):
        pull_sources(workspace, PullWanted(("order",)))


def test_a_server_s_thread_sends_what_another_consented_to_in_the_name_of_who_sits_there(
    pulled: Workspace,
) -> None:
    plan, done = approved(pulled), []
    thread = threading.Thread(target=lambda: done.append(apply_plan(replace(pulled, name="carl"), plan)))
    thread.start()
    thread.join()
    again = apply_plan(pulled, plan).document
    [first] = done
    assert (first.code, first.document["sent"]) == (ExitCode.DONE, 5)
    assert (again["sent"], again["skipped"], again["states"]["confirmed"]) == (0, 5, 5)
    assert read_replay_status(pulled, plan)["states"] == again["states"]
    told = {(one["actor"], one["action"]) for one in list_audit(pulled, subject=plan)}
    assert {("ann", "plan"), ("bob", "approve"), ("carl", "apply")} <= told


def test_a_letter_that_was_sent_is_not_dismissed(pulled: Workspace) -> None:
    apply_plan(pulled, approved(pulled))
    assert dismiss_letters(pulled, (), Selection("true"), "all of it") == {"dismissed": 0, "known": 5}
    assert verify_books(pulled)["sources"][0]["replayed"] == 5


@pytest.mark.parametrize(("became", "code"), [
    ({"confirmed": 2}, ExitCode.DONE),
    ({"confirmed": 2, "returned": 1}, ExitCode.PARTLY),
    ({"confirmed": 2, "refused": 1}, ExitCode.PARTLY),
    ({"confirmed": 2, "refused": 1, "in_doubt": 1}, ExitCode.IN_DOUBT),
])  # fmt: skip
def test_letters_in_doubt_decide_how_an_apply_ends(became: dict[str, int], code: ExitCode) -> None:
    assert code_of_states(Counter(became)) is code


def test_where_letters_are_left_that_may_go_later_not_all_is_done(pulled: Workspace, notes: Notes) -> None:
    plan, left = approved(pulled), "letter 1 is left out, and may go later: its connection ends with another"
    done = finish(pulled, Run(plan, 5, refused=[left]), Stop(pulled.store, plan), {})
    assert (done.code, done.document["states"]["planned"], notes.problems) == (ExitCode.PARTLY, 5, [left])


def test_a_ramp_sends_in_steps(pulled: Workspace, folder: Path) -> None:
    done = ramp_plan(pulled, approved(pulled), 0.1)
    assert [step["sent"] for step in done.document["steps"]][:1] == [1]
    assert done.document["left"] == 5 - arrived(folder)


def test_what_nobody_consented_to_is_not_sent(pulled: Workspace, folder: Path) -> None:
    plan = make_plan(replace(pulled, name="ann"), PlanWanted(how=ANY)).header.plan
    for act in (apply_plan, lambda workspace, one: ramp_plan(workspace, one, 0.1)):
        with pytest.raises(UsageError, match="is not approved"):
            act(pulled, plan)
    assert str(why_not_apply(pulled, plan)).startswith(f"plan {plan} is not approved")
    assert arrived(folder) == 0


def test_only_who_applies_is_asked_to_stop(pulled: Workspace) -> None:
    plan = approved(pulled)
    assert stop_plan(pulled, plan[:15]) == {"plan": plan, "stopping": False}
    with pulled.store.lock(f"plan-{plan}"):
        assert stop_plan(pulled, plan)["stopping"] is True
        with pytest.raises(Busy):
            reconcile_plan(pulled, plan)


def test_a_plan_is_sent_no_faster_than_it_says_which_is_what_others_consented_to(pulled: Workspace) -> None:
    plan = approved(pulled, Wanted(any_advice=True, rate=5.0))
    assert change_rate(pulled, plan, 2.0) == {"plan": plan, "rate": 2.0, "changed": False}
    with pulled.store.lock(f"plan-{plan}"):
        assert change_rate(pulled, plan, 5.0)["changed"] is True
    for odd in (5.1, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match=r"at least 0.1, and at most the 5 of the plan"):
            change_rate(pulled, plan, odd)


def test_what_is_done_is_in_the_name_of_who_did_it(pulled: Workspace) -> None:
    page = list_letters(pulled, LettersWanted(limit=2, columns=("record_id",)))
    ids = [row[0] for row in page.rows]
    by_agent = replace(pulled, name="agent helper (beta) for ann")
    assert dismiss_letters(by_agent, ids, EVERY, "sent anew") == {"dismissed": 2, "known": 0}
    told = [one for one in list_audit(pulled) if one["subject"] == ids[0]]
    assert [(one["actor"], one["reason"]) for one in told] == [("agent helper  beta  for ann", "sent anew")]
    name = list_failures(pulled)[0]["fingerprint"]
    ann = replace(pulled, name="ann")
    assign_failure(ann, name, "bob")
    assert snooze_failure(ann, name, "3d", None, "on Monday")["state"] == "snoozed"
    resolved = resolve_failure(ann, name[:8], "fixed in 2.4.1")
    assert resolved == show_failure(pulled, name)
    assert [(one["actor"], one["action"]) for one in resolved["history"]] == [
        ("ann", "assign"), ("ann", "snooze"), ("ann", "resolve"),
    ]  # fmt: skip
    for refused, why in (
        (lambda: dismiss_letters(pulled, (), Selection("true"), " "), "say why"),
        (lambda: dismiss_letters(pulled, (), EVERY, "x"), "no letters are chosen"),
        (lambda: snooze_failure(ann, name, "3d", 4, "both"), "give either --until TIME or --letters N"),
    ):
        with pytest.raises(UsageError, match=why):
            refused()


def test_letters_that_another_plan_sent_elsewhere_meanwhile_are_counted_and_left_out(
    pulled: Workspace, notes: Notes
) -> None:
    first, second = approved(pulled), approved(pulled, Wanted("true", "queue:orders.dlq", any_advice=True))
    apply_plan(pulled, first)
    done = apply_plan(pulled, second)
    assert (done.code, done.document["sent"], done.document["sent_elsewhere"]) == (ExitCode.PARTLY, 0, 5)
    told = "left out: 5 of its letters, confirmed at queue:orders by another plan"
    assert any(told in problem for problem in notes.problems)


def test_a_file_goes_out_and_comes_in_again(pulled: Workspace, tmp_path: Path, notes: Notes) -> None:
    path = tmp_path / "out.jsonl"
    with path.open("wb") as file:
        assert export_letters(pulled, EVERY)(file) == 5
        file.write(b"no letter\n")
    done = import_file(pulled, str(path), "again")
    assert (done.document["records"], done.document["refused"], done.twins) == (5, 1, 5)
    assert done.code is ExitCode.PARTLY
    assert any("line 6" in problem for problem in notes.problems)
    with pytest.raises(UsageError, match=r"--source 'x+': a name has letters, digits"):
        import_file(pulled, str(path), "x" * 150)
