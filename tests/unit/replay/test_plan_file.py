"""The file of a plan: nobody can change it unseen, and its name finds it."""

import json
from dataclasses import replace

import pytest
from support.planning import Planning, lines
from support.replaying import fill

from dlq.core.errors import FormatTooNew, UsageError
from dlq.replay import planfile
from dlq.replay.plan import Wanted


def test_an_untouched_plan_is_accepted(plan: Planning) -> None:
    fill(plan.store, 3)
    header = plan(Wanted(rate=5.5, where="source = 'orders'"))
    assert planfile.checked(plan.store, header.plan) == replace(
        header, audience={"queue:orders": ("orders",)}
    )


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (0, "rate", 100.0),
        (0, "keep_headers", True),
        (0, "letters", 2),
        (1, "row", 2),
        (1, "target", ["queue", "x", ""]),
    ],
)
def test_a_changed_plan_is_refused(plan: Planning, line: int, field: str, value: object) -> None:
    fill(plan.store, 3)
    header = plan()
    changed = lines(plan, header)
    changed[line][field] = value
    text = "\n".join(json.dumps(one, separators=(",", ":")) for one in changed)
    plan.store.put(planfile.name_of(header.plan), f"{text}\n".encode())
    with pytest.raises(UsageError, match="was changed"):
        planfile.checked(plan.store, header.plan)


def test_a_plan_that_lost_a_line_is_refused(plan: Planning) -> None:
    fill(plan.store, 3)
    header = plan()
    whole = plan.store.get(planfile.name_of(header.plan)).splitlines(keepends=True)
    plan.store.put(planfile.name_of(header.plan), b"".join(whole[:-1]))
    with pytest.raises(UsageError, match="was changed"):
        planfile.checked(plan.store, header.plan)


def test_a_plan_of_a_newer_dlq_is_refused(plan: Planning) -> None:
    fill(plan.store, 1)
    header = plan()
    changed = lines(plan, header)
    changed[0]["format"] = 99
    plan.store.put(planfile.name_of(header.plan), json.dumps(changed[0]).encode())
    with pytest.raises(FormatTooNew):
        planfile.load(plan.store, header.plan)


def test_every_plan_is_a_new_file_and_is_found_by_its_beginning(plan: Planning) -> None:
    fill(plan.store, 1)
    first, second = plan().plan, plan().plan
    assert planfile.ids(plan.store) == sorted({first, second})
    assert planfile.find(plan.store, first) == first
    with pytest.raises(UsageError, match="not unique"):
        planfile.find(plan.store, "2")
    with pytest.raises(UsageError, match="no plan"):
        planfile.find(plan.store, "../../etc/passwd")
