"""Which consent counts: another person's, for this plan as it is, within its time."""

from dataclasses import replace

import pytest
from support.rows import each_row

from dlq.core.errors import UsageError
from dlq.core.failures import Action, make_event
from dlq.core.settings import Replay
from dlq.replay.plans.approvals import approval, check
from dlq.replay.plans.planfile import Header

HOUR = 3_600_000_000
PLAN = Header("p1", "2026-11-21T03:01:00Z", None, "failed", 3, digest="d1", actor="ann@desk")
WANTED = Replay(approval=True, approval_time="1h")


def test_the_consent_of_another_person_counts_for_its_time() -> None:
    check(PLAN, [], Replay(), 0)  # nothing is asked for unless it is configured
    given = approval(PLAN, "bob@desk", "seen", 0, WANTED)
    check(PLAN, [given], WANTED, HOUR)
    with pytest.raises(UsageError, match=r"older than 1h .* approve p1` again"):
        check(PLAN, [given], WANTED, HOUR + 1)
    check(PLAN, [given, approval(PLAN, "eve@desk", "", 9, WANTED)], WANTED, HOUR + 9)


@each_row("who", ["ann@desk", "ann@laptop", "ANN", " ann @x"])
def test_who_made_a_plan_does_not_approve_it_from_any_host(who: str) -> None:
    with pytest.raises(UsageError, match="another person has to approve it"):
        approval(PLAN, who, "", 0, WANTED)
    with pytest.raises(UsageError, match="is not approved"):
        check(PLAN, [make_event(0, who, "p1", "approve", "d1")], WANTED, 0)
    with pytest.raises(UsageError, match="make it again"):
        approval(replace(PLAN, actor=None), "bob@desk", "", 0, WANTED)


@each_row("plan, action, digest", [
    ("p2", "approve", "d1"), ("p1", "approve", "d2"), ("p1", "apply", "d1"), ("p1", "note", "d1"),
])  # fmt: skip
def test_the_consent_to_something_else_does_not_count(plan: str, action: Action, digest: str) -> None:
    with pytest.raises(UsageError, match="is not approved"):
        check(PLAN, [make_event(0, "bob@desk", plan, action, digest)], WANTED, 0)


AGENTS = replace(PLAN, actor="agent x for ann@desk")


@each_row("who, asked, counts", [("ann", False, True), ("ann", True, False), ("bob", True, True)])
def test_a_plan_of_an_agent_waits_for_a_person_whatever_is_configured(
    who: str, asked: bool, counts: bool
) -> None:
    """Where two people have to agree, whom it acts for is one of them."""
    wanted = Replay(approval=asked)
    with pytest.raises(UsageError, match="is not approved"):
        check(AGENTS, [], wanted, 0)
    consent = make_event(0, f"{who}@laptop", "p1", "approve", "d1")
    if counts:
        assert approval(AGENTS, f"{who}@laptop", "", 0, wanted).actor == f"{who}@laptop"
        check(AGENTS, [consent], wanted, 0)
    else:
        with pytest.raises(UsageError, match="another person has to approve it"):
            approval(AGENTS, f"{who}@laptop", "", 0, wanted)
        with pytest.raises(UsageError, match="another person has to run"):
            check(AGENTS, [consent], wanted, 0)
