"""What operations show of the archive, and what they refuse, which they say beforehand."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlq.cli.app import run
from dlq.core.errors import Busy, UsageError
from dlq.operations.brokers.sources import list_sources
from dlq.operations.reading.books import list_audit, list_transactions
from dlq.operations.reading.incidents import list_incidents, show_incident
from dlq.operations.replays.consent import why_not_approve
from dlq.operations.replays.plans import list_plan_letters, show_plan, why_not_apply
from dlq.operations.workspace import Workspace


def test_an_incident_tells_which_failures_it_is_made_of(
    dlq: Any, workspace: Workspace, tmp_path: Path, dead: Callable[[int], dict[str, Any]]
) -> None:
    (tmp_path / "burst.jsonl").write_text("\n".join(json.dumps(dead(number)) for number in range(60)))
    dlq("import", "burst.jsonl")
    (row,) = list_incidents(workspace)
    shown = show_incident(workspace, row["incident_id"])
    assert sum(one["letters"] for one in shown["by_failure"]) == shown["size"] == 60
    assert shown["next"]["command"] == f"dlq ls --incident {row['incident_id']}"
    with pytest.raises(UsageError, match="no incident"):
        show_incident(workspace, "x")


def test_the_letters_of_a_plan_come_page_by_page(dlq: Any, workspace: Workspace) -> None:
    dlq("pull")
    plan = dlq("replay", "plan", "--any-advice")["plan"]
    whole = list(list_plan_letters(workspace, plan))
    first = list(list_plan_letters(workspace, plan, limit=2))
    assert [(one["number"], one["target"]) for one in whole] == [(n, "queue:orders") for n in range(5)]
    assert first + list(list_plan_letters(workspace, plan, after=first[-1]["number"])) == whole


def test_a_refusal_is_known_beforehand(
    dlq: Any, workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    dlq("pull")
    plan = dlq("replay", "plan", "--any-advice", "--as", "ann")["plan"]

    def said(*words: str) -> str:
        run(words)
        return capfd.readouterr().err.removeprefix("dlq: ").rstrip("\n")

    assert str(why_not_apply(workspace, plan)) == said("replay", "apply", plan)
    by_ann = why_not_approve(replace(workspace, name="ann@x"), plan)
    assert str(by_ann) == said("replay", "approve", plan, "--as", "ann@x")
    assert why_not_approve(replace(workspace, name="bob"), plan) is None
    said("replay", "approve", plan, "--as", "bob", "--reason", "looked at it")
    assert why_not_apply(workspace, plan) is None
    with workspace.store.lock(f"plan-{plan}"):
        assert isinstance(why_not_apply(workspace, plan), Busy)
    [told] = show_plan(workspace, plan)["history"]
    assert (told["actor"], told["action"]) == ("bob", "approve")
    (file,) = Path("archive/plans").glob("*.jsonl")
    file.write_bytes(file.read_bytes() + b"\n")
    assert str(why_not_apply(workspace, plan)) == said("replay", "apply", plan)


def test_sources_tell_what_is_known_of_them_without_asking_a_broker(dlq: Any, workspace: Workspace) -> None:
    (before,) = list_sources(workspace)
    assert (before["letters"], before["depth"], before["archived_at"]) == (0, None, None)
    dlq("run", "nightly")
    Path("broker.db").rename("gone.db")
    (after,) = list_sources(workspace)
    assert (after["source"], after["broker"], after["kind"], after["place"]) == (
        "orders", "shop", "memory", "orders.dlq",
    )  # fmt: skip
    assert (after["letters"], after["depth"], after["oldest"]) == (5, 0, "2026-11-02T03:00:00Z")
    assert after["depth_at"] > after["archived_at"] > "2026"


@pytest.mark.parametrize("text", ["", "[]", '{"finished": 1, "run": {"sources": [1, {"source": "orders"}]}}'])
def test_what_a_run_left_behind_damaged_hides_no_source(dlq: Any, workspace: Workspace, text: str) -> None:
    dlq("run", "nightly")
    Path("archive/runs/nightly.json").write_text(text)
    assert [one["depth"] for one in list_sources(workspace)] == [None]


def test_the_audit_tells_who_did_what_the_last_first(dlq: Any, workspace: Workspace) -> None:
    dlq("pull")
    (failure, *_) = dlq("failures")
    dlq("failures", "assign", failure["fingerprint"], "bob", "--as", "ann")
    plan = dlq("replay", "plan", "--any-advice", "--as", "ann")["plan"]
    dlq("dismiss", failure["example"], "--reason", "sent anew")
    told = list_audit(workspace)
    assert [(one["about"], one["action"]) for one in told] == [
        ("letter", "dismiss"), ("plan", "plan"), ("failure", "assign"),
    ]  # fmt: skip
    assert list_audit(workspace, limit=1) == told[:1]
    assert [one["actor"] for one in list_audit(workspace, subject=plan)] == ["ann"]
    assert list_transactions(workspace) == []
