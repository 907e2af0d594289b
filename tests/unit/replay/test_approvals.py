"""Which consent counts: another person's, for this plan as it is, within its time."""

import pytest

from dlq.core.errors import UsageError
from dlq.core.failures import Event, said
from dlq.core.settings import Replay
from dlq.replay.approvals import approval, check
from dlq.replay.planfile import Header

HOUR = 3_600_000_000
PLAN = Header("p1", "2026-11-21T03:01:00Z", None, "failed", 3, digest="d1", actor="ann@desk")
WANTED = Replay(approval=True, approval_time="1h")


def test_the_consent_of_another_person_counts_for_its_time() -> None:
    given = approval(PLAN, "bob@desk", "seen", 0)
    check(PLAN, [given], WANTED, HOUR)
    with pytest.raises(UsageError, match=r"older than 1h .* approve p1` again"):
        check(PLAN, [given], WANTED, HOUR + 1)
    check(PLAN, [given, approval(PLAN, "eve@desk", "", 9)], WANTED, HOUR + 9)


@pytest.mark.parametrize("who", ["ann@desk", "ann@laptop", "ANN", " ann @x"])
def test_who_made_a_plan_does_not_approve_it_from_any_host(who: str) -> None:
    with pytest.raises(UsageError, match="another person has to approve it"):
        approval(PLAN, who, "", 0)
    with pytest.raises(UsageError, match="is not approved"):
        check(PLAN, [said(0, who, "p1", "approve", "d1")], WANTED, 0)


@pytest.mark.parametrize(
    "event",
    [
        said(0, "bob@desk", "p2", "approve", "d1"),
        said(0, "bob@desk", "p1", "approve", "d2"),
        said(0, "bob@desk", "p1", "apply", "d1"),
        said(0, "bob@desk", "p1", "note", "d1"),
    ],
)
def test_the_consent_to_something_else_does_not_count(event: Event) -> None:
    with pytest.raises(UsageError, match="is not approved"):
        check(PLAN, [event], WANTED, 0)


def test_nothing_is_asked_for_unless_it_is_configured() -> None:
    check(PLAN, [], Replay(), 0)


def test_a_plan_that_does_not_say_who_made_it_is_made_again() -> None:
    older = Header("p1", "2026-11-21T03:01:00Z", None, "failed", 3, digest="d1")
    with pytest.raises(UsageError, match="make it again"):
        approval(older, "bob@desk", "", 0)
