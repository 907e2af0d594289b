"""Where a reading starts in each partition, without a broker."""

from support.rows import each_row

from dlq.connectors.base import Checkpoint, Gap
from dlq.connectors.kafka.look.cluster import Log, Place, Topic
from dlq.connectors.kafka.read.snapshot import EPOCH, cut_logs, plan_of

TOPIC, PLACE = Topic("dead", "4nLo", 1), Place("dead", 0)
KEY = "dead@cluster/4nLo:0"
ENDS = {3: 20, 5: 40, 6: 50}
"""Epoch -> where it ends in the log as it is now: epoch 4 wrote nothing that is left."""


def end_of_epoch(place: Place, epoch: int) -> int:
    return max((end for known, end in ENDS.items() if known <= epoch), default=-1)


CUTS: list[tuple[str, Checkpoint, bool]] = [
    ("nothing was read", {}, False),
    ("a checkpoint of before epochs were kept", {KEY: 45}, False),
    ("what was read is of the epoch that still writes", {KEY: 50, f"{KEY}{EPOCH}": 6}, False),
    ("the epoch reaches as far as it was read", {KEY: 40, f"{KEY}{EPOCH}": 5}, False),
    ("the epoch goes on behind what was read", {KEY: 10, f"{KEY}{EPOCH}": 3}, False),
    ("the epoch ends before", {KEY: 41, f"{KEY}{EPOCH}": 5}, True),
    ("nothing of the epoch is left", {KEY: 30, f"{KEY}{EPOCH}": 4}, True),
    ("an epoch that the log has never had", {KEY: 1, f"{KEY}{EPOCH}": 2}, True),
    ("an epoch was kept and nothing read", {f"{KEY}{EPOCH}": 2}, False),
    ("the log that took its place is whole",
     {KEY: 41, f"{KEY}{EPOCH}": 4, f"{KEY}~1": 40, f"{KEY}~1{EPOCH}": 5}, False),
    ("the log that took its place is cut, too",
     {KEY: 9, f"{KEY}{EPOCH}": 3, f"{KEY}~1": 41, f"{KEY}~1{EPOCH}": 5}, True),
]  # fmt: skip


@each_row(("resume", "expected"), [row[1:] for row in CUTS], ids=[row[0] for row in CUTS])
def test_a_log_is_cut_where_what_was_read_ends_earlier_now(resume: Checkpoint, expected: bool) -> None:
    found = cut_logs("cluster", [TOPIC], [Log(PLACE, 0, 50, 50, 6)], resume, end_of_epoch)
    assert (PLACE in found) is expected


def test_a_partition_that_was_cut_is_read_from_its_start_under_a_key_of_its_own() -> None:
    log = Log(PLACE, 10, 50, 50, 6)
    plan = plan_of("cluster", [TOPIC], [log], {KEY: 41, f"{KEY}{EPOCH}": 5}, {PLACE})
    (offset_range,) = plan.ranges
    assert (offset_range.key, offset_range.start, offset_range.end) == (f"{KEY}~1", 10, 50)
    assert (plan.complete, plan.gaps) == (False, [Gap("dead-0", 41, None, KEY)])
    assert plan.marks == {f"{KEY}~1": 10, f"{KEY}~1{EPOCH}": 6}


def test_an_epoch_that_is_told_is_kept() -> None:
    for epoch, marks in ((6, {f"{KEY}{EPOCH}": 6}), (-1, {})):
        assert plan_of("cluster", [TOPIC], [Log(PLACE, 0, 50, 50, epoch)], {KEY: 50}).marks == marks


def test_a_topic_that_was_made_again_is_told_by_its_partitions_alone() -> None:
    former = "dead@cluster/old:0"
    plan = plan_of("cluster", [TOPIC], [Log(PLACE, 0, 5, 5, 0)], {former: 7, f"{former}{EPOCH}": 2})
    assert plan.gaps == [Gap("dead-0", 7, None, "dead@cluster/old")]
    assert "(partition 0 at 7)" in plan.notes[0]


def test_a_topic_that_was_made_again_twice_has_lost_the_end_of_both() -> None:
    former = {"dead@cluster/a:0": 9, "dead@cluster/a:0~1": 7, "dead@cluster/b:0": 7}
    plan = plan_of("cluster", [TOPIC], [Log(PLACE, 0, 5, 5, 0)], former)
    assert plan.gaps == [Gap("dead-0", 7, None, f"dead@cluster/{which}") for which in "ab"]
