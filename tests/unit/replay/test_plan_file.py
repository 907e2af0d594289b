"""The file of a plan: nobody can change it unseen, and its name finds it."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.planning import Planning, lines
from support.replaying import fill

from dlq.core.errors import ArchiveError, FormatTooNew, UsageError
from dlq.replay.plans import planfile
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.wanted import Wanted


@pytest.mark.parametrize(("line", "field", "value"), [
    (0, "rate", 100.0), (0, "keep_headers", True), (0, "letters", 2), (1, "row", 2),
    (1, "target", ["queue", "x", ""]), (3, None, None),
])  # fmt: skip
def test_a_changed_plan_is_refused(plan: Planning, line: int, field: str | None, value: object) -> None:
    fill(plan.store, 3)
    header = plan(Wanted(rate=5.5, where="source = 'orders'"))
    told = replace(header, audience={"queue:orders": ("orders",)})
    assert planfile.load_checked(plan.store, header.plan) == told
    changed = lines(plan, header)
    if field is None:
        del changed[line]
    else:
        changed[line][field] = value
    text = "\n".join(json.dumps(one, separators=(",", ":")) for one in changed)
    plan.store.put(planfile.name_of(header.plan), f"{text}\n".encode())
    with pytest.raises(UsageError, match="was changed"):
        planfile.load_checked(plan.store, header.plan)
    plan.store.put(planfile.name_of(header.plan), f"{text}\n".replace('"row":', '"row":7,"row":').encode())
    with pytest.raises(ArchiveError, match="is damaged at line 2"):
        next(planfile.letters(plan.store, header.plan))
    changed[0]["format"] = 99
    plan.store.put(planfile.name_of(header.plan), json.dumps(changed[0]).encode())
    with pytest.raises(FormatTooNew):
        planfile.load(plan.store, header.plan)


def test_every_plan_is_a_new_file_and_is_found_by_its_beginning(plan: Planning) -> None:
    fill(plan.store, 1)
    first, second = plan().plan, plan().plan
    assert planfile.ids(plan.store) == sorted({first, second})
    assert planfile.find(plan.store, first) == first
    with pytest.raises(UsageError, match="is ambiguous"):
        planfile.find(plan.store, "2")
    with pytest.raises(UsageError, match="no plan"):
        planfile.find(plan.store, "../../etc/passwd")


def test_a_file_whose_name_would_be_more_than_a_name_is_no_plan(plan: Planning) -> None:
    """It stands in commands to be copied."""
    fill(plan.store, 1)
    header = plan()
    for name in ("x; reboot", "-h", "a b", "below/x", "é", "a" * 65, ""):
        plan.store.put(planfile.name_of(name), plan.store.get(planfile.name_of(header.plan)))
        assert planfile.ids(plan.store) == [header.plan], name


def test_how_far_a_ramp_is_can_be_read_by_others_or_is_named_as_damage(plan: Planning) -> None:
    assert planfile.ramp_of(plan.store, "p") == {}
    one = {"sent": 1, "came_back": 0, "evidence": "consumed"}
    steps = [one, {"sent": 10, "came_back": 9, "evidence": "held"}]
    planfile.keep_ramp(plan.store, "p", steps, "harm")
    assert planfile.ramp_of(plan.store, "p") == {"steps": steps, "stopped_by": "harm"}
    assert planfile.ids(plan.store) == []
    for step in ({}, {**one, "sent": "1"}, 7, {"sent": 1, "came_back": 0}):
        document = {"format": 1, "steps": [step], "stopped_by": None}
        plan.store.put("plans/p.ramp.json", json.dumps(document).encode())
        with pytest.raises(ArchiveError, match=r"p\.ramp\.json"):
            planfile.ramp_of(plan.store, "p")


def test_a_line_without_an_end_takes_no_memory(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planfile, "LONGEST_LINE", 2**20)
    fill(plan.store, 3)
    header = plan()
    whole = plan.store.get(planfile.name_of(header.plan))
    plan.store.put(planfile.name_of(header.plan), whole + bytes(3 * 2**20))
    for look in (lambda: planfile.load_checked(plan.store, header.plan), lambda: [*letters(plan, header)]):
        with pytest.raises(ArchiveError, match="a line has more than 1 MiB"):
            look()


def letters(plan: Planning, header: planfile.Header) -> Iterator[Letter]:
    return planfile.letters(plan.store, header.plan)


def test_lines_over_several_pieces_are_read_and_checked_whole(
    plan: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(plan.store, 20)
    header = plan()
    before = [*letters(plan, header)]
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(planfile, "COPY_BYTES", size)
        assert [*letters(plan, header)] == before
        assert [*planfile.check(plan.store, header.plan).letters()] == before
