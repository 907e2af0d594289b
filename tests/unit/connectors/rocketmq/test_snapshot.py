"""Where a reading starts in each queue, without a broker."""

from support.rows import each_row

from dlq.connectors.base import Checkpoint, Gap
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import Plan, QueueOffsets, plan_of

PLACE = MessageQueue("%DLQ%pay", "broker-a", 0)
KEY = str(PLACE)


def planned(lowest: int, highest: int, resume: Checkpoint, is_anew: bool = False) -> Plan:
    return plan_of([QueueOffsets(PLACE, lowest, highest)], resume, [PLACE] if is_anew else [])


STARTS: list[tuple[Checkpoint, bool, tuple[str, int, int]]] = [
    ({}, False, (KEY, 10, 50)),
    ({KEY: 30}, False, (KEY, 30, 50)),
    ({KEY: 5}, False, (KEY, 10, 50)),
    ({KEY: 70}, False, (f"{KEY}~1", 10, 50)),
    ({KEY: 30}, True, (f"{KEY}~1", 10, 50)),
    ({KEY: 70, f"{KEY}~1": 30}, False, (f"{KEY}~1", 30, 50)),
    ({KEY: 70, f"{KEY}~1": 60}, False, (f"{KEY}~2", 10, 50)),
    ({KEY: 70, f"{KEY}~1": 30}, True, (f"{KEY}~2", 10, 50)),
]


@each_row(("resume", "is_anew", "expected"), STARTS)
def test_a_reading_starts_at_the_checkpoint_of_the_store_that_is_there(
    resume: Checkpoint, is_anew: bool, expected: tuple[str, int, int]
) -> None:
    (offset_range,) = planned(10, 50, resume, is_anew).ranges
    assert (offset_range.key, offset_range.start, offset_range.end) == expected


def test_letters_that_retention_took_before_they_were_read_are_a_gap() -> None:
    assert planned(10, 50, {KEY: 5}).gaps == [Gap(KEY, 5, 10, KEY)]


def test_a_new_store_makes_a_reading_incomplete_whether_or_not_it_has_grown_as_far() -> None:
    shorter, longer = planned(0, 50, {KEY: 70}), planned(0, 50, {KEY: 30}, is_anew=True)
    assert [plan.complete for plan in (shorter, longer)] == [False, False]
    assert (shorter.gaps, longer.gaps) == ([Gap(KEY, 70, None, KEY)], [Gap(KEY, 30, None, KEY)])
    assert "after offset 29 of the old one" in longer.notes[0]
