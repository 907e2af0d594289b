"""Consumers are asked what they have processed of a replay, and their owners' word is shown."""

import sys
from dataclasses import replace

import pytest
from support.waiting import PATIENCE, UNHURRIED

from dlq.core.runtime import bounded_json
from dlq.core.settings import Consumer
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.outcome import ExitCode
from dlq.operations.programs import ask_program
from dlq.operations.reading.letters import LettersWanted, list_letters
from dlq.operations.reading.reporting import ReportWanted, make_report
from dlq.operations.replays.applying import apply_plan
from dlq.operations.replays.owners import check_replay
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Notes, Workspace
from dlq.replay.plans.wanted import Wanted

ALL_BUT_M3 = "import json, sys; print(json.dumps([one for one in json.load(sys.stdin) if one != 'm3']))"


def with_consumer(workspace: Workspace, program: str, wait: str = UNHURRIED) -> Workspace:
    verify = (sys.executable, "-c", program)
    billing = Consumer("billing", ("ord*",), "safe", "idempotent", verify=verify, verify_timeout=wait)
    replay = replace(workspace.settings.replay, approval=False)
    return replace(
        workspace, settings=replace(workspace.settings, consumers={"billing": billing}, replay=replay)
    )


def replayed(workspace: Workspace, program: str) -> tuple[Workspace, str]:
    """A workspace with a consumer whose program this is, and an applied plan of all five letters."""
    workspace = with_consumer(workspace, program)
    pull_sources(workspace, PullWanted())
    plan = make_plan(workspace, PlanWanted(how=Wanted(any_advice=True))).header.plan
    assert apply_plan(workspace, plan).code is ExitCode.DONE
    return workspace, plan


def test_exactly_the_messages_that_were_not_processed_are_named(workspace: Workspace) -> None:
    workspace, plan = replayed(workspace, ALL_BUT_M3)
    letters = list_letters(workspace, LettersWanted(columns=("record_id", "message_id")))
    (missing,) = (record_id for record_id, message_id in letters.rows if message_id == "m3")

    checked = check_replay(workspace, plan)

    counts = {"processed": 4, "not_processed": [missing], "unknown": 0, "error": None}
    assert checked.document["consumers"] == [{"consumer": "billing", **counts}]
    assert (checked.document["confirmed"], checked.document["unasked"]) == (5, 0)
    assert checked.code is ExitCode.PARTLY


def test_what_retention_has_removed_counts_and_nobody_is_asked_about_it(workspace: Workspace) -> None:
    workspace, plan = replayed(workspace, ALL_BUT_M3)
    for name in [*workspace.store.list("manifests/")]:
        workspace.store.delete(name)
    document, code = check_replay(workspace, plan)
    assert code is ExitCode.PARTLY
    assert (document["confirmed"], document["unasked"], document["consumers"]) == (5, 5, [])


def test_a_program_that_fails_leaves_its_messages_unknown(
    workspace: Workspace, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, plan = replayed(workspace, "")
    monkeypatch.setattr(bounded_json, "LARGEST", 2**20)
    for program, said in (
        ("import time; time.sleep(600)", "did not end within 1s"),
        ("import os\nwhile True: os.write(1, b'x' * 2**20)", "did not end within 1,048,576 bytes"),
        ("raise SystemExit(3)", "ended with code 3"),
        ("print('yes')", "printed no JSON"),
        ("print(7)", "must print a JSON list of ids, or"),
    ):
        wait = "1s" if "1s" in said else UNHURRIED
        checked = check_replay(with_consumer(workspace, program, wait), plan)
        (row,) = checked.document["consumers"]
        assert (row["processed"], row["not_processed"], row["unknown"]) == (0, [], 5)
        assert said in row["error"]
        assert said in notes.problems[-1]
        assert checked.code is ExitCode.PARTLY


def test_a_program_that_is_slow_to_read_is_told_all() -> None:
    program = "import json, sys, time; time.sleep(0.5); print(json.dumps(len(json.load(sys.stdin))))"
    assert ask_program([sys.executable, "-c", program], ["m" * 100] * 10_000, PATIENCE) == 10_000


def test_a_program_may_answer_with_true_and_false(workspace: Workspace) -> None:
    workspace, plan = replayed(
        workspace, "import json, sys; print(json.dumps(dict.fromkeys(json.load(sys.stdin), True)))"
    )
    assert check_replay(workspace, plan).code is ExitCode.DONE


def test_of_what_an_object_leaves_out_nothing_is_known(workspace: Workspace) -> None:
    workspace, plan = replayed(workspace, 'print(\'{"m1": true, "m2": false}\')')
    (told,) = check_replay(workspace, plan).document["consumers"]
    assert (told["processed"], len(told["not_processed"]), told["unknown"]) == (1, 1, 3)


def test_the_owners_word_stands_in_a_report(workspace: Workspace) -> None:
    workspace = with_consumer(workspace, "")
    pull_sources(workspace, PullWanted())
    says = {"consumer": "billing", "says": "billing: safe (idempotent)"}
    assert make_report(workspace, ReportWanted())["owners"] == [says]


def test_a_word_about_sources_that_are_none_is_warned_of(workspace: Workspace, notes: Notes) -> None:
    pull_sources(workspace, PullWanted())
    for patterns, warned in (
        (("ord*",), []),
        (
            ("ord*", "order"),
            ["consumers.billing.sources: no source matches 'order'; did you mean 'orders'?; correct it"],
        ),
    ):
        consumers = {"billing": Consumer("billing", patterns, "never", "idempotent")}
        typed = replace(workspace, settings=replace(workspace.settings, consumers=consumers))
        make_plan(typed, PlanWanted(how=Wanted(any_advice=True)))
        assert [line for line in notes.warnings if "no source" in line] == warned
