"""What operations show is what the command line prints with -o json; what they refuse they say beforehand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlq.cli.app import run
from dlq.core.errors import Busy, UsageError
from dlq.operations.books import list_audit, list_transactions, verify_books
from dlq.operations.consent import why_not_approve
from dlq.operations.desk import Desk, Notes
from dlq.operations.failures import list_failures, show_failure
from dlq.operations.incidents import COLUMNS, list_incidents, show_incident
from dlq.operations.plans import list_plan_letters, list_plans, read_replay_status, show_plan, why_not_apply
from dlq.operations.reporting import ReportWanted, describe_now, make_report
from dlq.operations.sources import add_oldest, inspect_sources, list_sources


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def test_one_function_makes_what_both_show(dlq: Any, desk: Desk, notes: Notes) -> None:
    dlq("pull")
    plan = dlq("replay", "plan", "--any-advice", "--as", "ann", "--reason", "the gateway is back")
    (failure, *_) = dlq("failures")
    of_both: list[tuple[Any, tuple[str, ...]]] = [
        (verify_books(desk), ("verify",)),
        (show_failure(desk, failure["fingerprint"][:8]), ("failures", "show", failure["fingerprint"])),
        (list_plans(desk).plans, ("replay", "status")),
        (read_replay_status(desk, plan["plan"]), ("replay", "status", plan["plan"])),
    ]
    assert [as_json(mine) for mine, _ in of_both] == [dlq(*words) for _, words in of_both]
    prints = [[row["fingerprint"] for row in rows] for rows in (list_failures(desk), dlq("failures"))]
    assert prints[0] == prints[1]
    incidents = as_json([{name: row[name] for name in COLUMNS} for row in list_incidents(desk)])
    assert incidents == dlq("incidents")["incidents"]
    found = add_oldest(desk, inspect_sources(desk, desk.sources()))
    assert [str(line) for line in notes.lines] == ["orders: looking"], "what people would read"
    assert as_json([one.document for one in found]) == dlq("doctor")["sources"]
    shown = as_json(show_plan(desk, plan["plan"]))
    assert {name: shown[name] for name in plan} == plan


def test_a_report_is_what_the_command_makes_and_now_begins_with_the_answer(dlq: Any, desk: Desk) -> None:
    dlq("pull")
    mine, printed = as_json(make_report(desk, ReportWanted())), dlq("report")
    now = describe_now(desk)
    counts = [{**one["counts"], "oldest": None} for one in (mine, printed, now)]  # its age grows meanwhile
    assert counts[0] == counts[1] == counts[2]
    assert mine.keys() == printed.keys() == now.keys() - {"headline", "basis"}
    assert any(sentence.startswith("5 dead letters in 1 source") for sentence in now["headline"])


def test_an_incident_tells_which_failures_it_is_made_of(
    dlq: Any, desk: Desk, tmp_path: Path, dead: Callable[[int], dict[str, Any]]
) -> None:
    (tmp_path / "burst.jsonl").write_text("\n".join(json.dumps(dead(number)) for number in range(60)))
    dlq("import", "burst.jsonl")
    (row,) = list_incidents(desk)
    shown = show_incident(desk, row["incident_id"])
    assert sum(one["letters"] for one in shown["by_failure"]) == shown["size"] == 60
    assert shown["next"]["command"] == f"dlq ls --incident {row['incident_id']}"
    with pytest.raises(UsageError, match="no incident"):
        show_incident(desk, "x")


def test_the_letters_of_a_plan_come_page_by_page(dlq: Any, desk: Desk) -> None:
    dlq("pull")
    plan = dlq("replay", "plan", "--any-advice")["plan"]
    whole = list(list_plan_letters(desk, plan))
    first = list(list_plan_letters(desk, plan, limit=2))
    assert [one["number"] for one in whole] == [0, 1, 2, 3, 4]
    assert {one["target"] for one in whole} == {"queue:orders"}
    assert first + list(list_plan_letters(desk, plan, after=first[-1]["number"])) == whole


def test_a_refusal_is_known_beforehand(dlq: Any, desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    dlq("pull")
    plan = dlq("replay", "plan", "--any-advice", "--as", "ann")["plan"]

    def said(*words: str) -> str:
        run(words)
        return capfd.readouterr().err.removeprefix("dlq: ").rstrip("\n")

    assert str(why_not_apply(desk, plan)) == said("replay", "apply", plan)
    assert "is not approved" in str(why_not_apply(desk, plan))
    assert str(why_not_approve(Desk(desk.settings, desk.archive, desk.listener, "ann@x"), plan)) == said(
        "replay", "approve", plan, "--as", "ann@x"
    )
    assert why_not_approve(Desk(desk.settings, desk.archive, desk.listener, "bob"), plan) is None
    said("replay", "approve", plan, "--as", "bob", "--reason", "looked at it")
    assert why_not_apply(desk, plan) is None
    with desk.store.lock(f"plan-{plan}"):
        assert isinstance(why_not_apply(desk, plan), Busy)
    assert [(one["actor"], one["action"]) for one in show_plan(desk, plan)["history"]] == [("bob", "approve")]
    (file,) = Path("archive/plans").glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b"\n")
    assert str(why_not_apply(desk, plan)) == said("replay", "apply", plan)


def test_sources_tell_what_is_known_of_them_without_asking_a_broker(dlq: Any, desk: Desk) -> None:
    (before,) = list_sources(desk)
    assert (before["letters"], before["depth"], before["archived_at"]) == (0, None, None)
    dlq("run", "nightly")
    Path("broker.db").rename("gone.db")
    (after,) = list_sources(desk)
    assert (after["source"], after["broker"], after["kind"], after["place"]) == (
        "orders", "shop", "memory", "orders.dlq",
    )  # fmt: skip
    assert (after["letters"], after["depth"], after["oldest"]) == (5, 0, "2026-11-02T03:00:00Z")
    assert after["depth_at"] > after["archived_at"] > "2026"


@pytest.mark.parametrize("text", ["", "[]", '{"finished": 1, "run": {"sources": [1, {"source": "orders"}]}}'])
def test_what_a_run_left_behind_damaged_hides_no_source(dlq: Any, desk: Desk, text: str) -> None:
    dlq("run", "nightly")
    Path("archive/runs/nightly.json").write_text(text)
    assert [one["depth"] for one in list_sources(desk)] == [None]


def test_the_audit_tells_who_did_what_the_last_first(dlq: Any, desk: Desk) -> None:
    dlq("pull")
    (failure, *_) = dlq("failures")
    dlq("failures", "assign", failure["fingerprint"], "bob", "--as", "ann")
    plan = dlq("replay", "plan", "--any-advice", "--as", "ann")["plan"]
    dlq("dismiss", failure["example"], "--reason", "sent anew")
    told = list_audit(desk)
    assert [(one["about"], one["action"]) for one in told] == [
        ("letter", "dismiss"), ("plan", "plan"), ("failure", "assign"),
    ]  # fmt: skip
    assert list_audit(desk, limit=1) == told[:1]
    assert [one["actor"] for one in list_audit(desk, subject=plan)] == ["ann"]
    assert list_transactions(desk) == []
