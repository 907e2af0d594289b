"""The engine of readings of a log: whatever retention takes, whoever replaces the log, and wherever a pull
ends, each letter is captured once, is still to be read, or is told of as lost."""

from itertools import islice
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.rows import each_row

from dlq.connectors.base import Gap, ReadRequest
from dlq.connectors.log import LogReading, Plan, Words, find_generation, is_another, mark_letter
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b"), "drain", "p", batch_rows=3)
WORDS = Words(begun_anew="{place} is another log than the one read to {last}", gone="{first} were gone")


class ScriptedReading(LogReading):
    """Its letters are their offsets."""

    def fetch(self, place: Any, start: int, most: int) -> tuple[Any, int]:
        return range(start, start + most), start + most


class Pulling(RuleBasedStateMachine):
    """A log and its pulls. A letter is (which log, offset)."""

    def __init__(self) -> None:
        super().__init__()
        self.log = self.first = self.end = 0
        self.read_log: int | None = None
        self.letters: list[tuple[int, int]] = []
        self.captured: list[tuple[int, int]] = []
        self.checkpoint: dict[str, int] = {}
        self.gaps: list[Gap] = []
        self.keys: dict[int, str] = {}
        self.gone_before: dict[int, int] = {}
        """How many letters of a log had gone when it was read first."""

    @rule(number=st.integers(1, 12))
    def store(self, number: int) -> None:
        self.letters += [(self.log, offset) for offset in range(self.end, self.end + number)]
        self.end += number

    @rule(share=st.floats(0, 1))
    def retain(self, share: float) -> None:
        self.first += round(share * (self.end - self.first))

    @rule()
    def replace(self) -> None:
        self.log, self.first, self.end = self.log + 1, 0, 0

    @rule(whole_batches=st.integers(0, 8))
    def pull(self, whole_batches: int) -> None:
        """It is cut when so many batches are durable."""
        is_anew = self.read_log not in (None, self.log)
        plan = Plan[str]()
        key = plan.add("q", "q", "q", (self.first, self.end), self.checkpoint, WORDS, anew=is_anew)
        [(_, start, _, _)] = plan.ranges
        if plan.notes and not is_anew:
            assert plan.notes == [f"{self.first} were gone"]
        reading = ScriptedReading(REQUEST, plan, {}, "Scripted")
        assert reading.snapshot == self.end - start
        for batch in islice(reading.batches(), whole_batches):
            letters: Any = batch.records
            self.captured += [(self.log, offset) for offset in letters]
            self.gaps += batch.gaps
            if batch.checkpoint:
                self.gone_before.setdefault(self.log, start)
                self.checkpoint.update(batch.checkpoint)
                self.read_log, self.keys[self.log] = self.log, key
            reading.acknowledge(batch.position)
            assert reading.settled_position() == batch.position

    @invariant()
    def no_letter_is_captured_twice(self) -> None:
        assert len(set(self.captured)) == len(self.captured)

    @invariant()
    def what_was_passed_is_captured_or_told_of(self) -> None:
        for log, offset in set(self.letters) - set(self.captured):
            if log not in self.keys:
                continue  # nobody has read it
            is_ahead = log == self.read_log and offset >= self.checkpoint[self.keys[log]]
            assert is_ahead or offset < self.gone_before[log] or self.is_told(log, offset)

    def is_told(self, log: int, offset: int) -> bool:
        ends = [(gap.first, gap.end) for gap in self.gaps if gap.log == self.keys[log]]
        return any(first <= offset and (end is None or offset < end) for first, end in ends)

    @invariant()
    def each_log_that_was_read_has_a_checkpoint_of_its_own(self) -> None:
        assert len(set(self.keys.values())) == len(self.keys)
        if self.keys:
            assert find_generation("q", self.checkpoint)[1] == self.keys[max(self.keys)]


test_each_letter_of_a_log_is_captured_once_or_told_of = Pulling.TestCase
Pulling.TestCase.settings = settings(stateful_step_count=25)
RESUME = {"orders": 8, **mark_letter("orders", 6, "a letter")}


@each_row(
    ("first", "end", "there", "another"),
    [
        (0, 8, {6: "a letter"}, False), (6, 8, {6: "a letter"}, False), (0, 8, {6: "another"}, True),
        (0, 900, {6: "another"}, True), (0, 8, {}, False), (7, 900, {6: "another"}, False),
        (0, 6, {6: "another"}, False),
    ],
    ids=["the same", "the first", "another", "grown past", "not shown", "taken by retention", "shorter"],
)  # fmt: skip
def test_only_another_letter_in_its_place_shows_another_log(
    first: int, end: int, there: dict[int, str], another: bool
) -> None:
    assert is_another("orders", first, end, RESUME, there.get) is another


def test_the_newest_log_of_a_place_is_compared_and_one_without_a_mark_is_taken_for_the_same() -> None:
    resume = {**RESUME, "orders~1": 3}
    assert not is_another("orders", 0, 9, resume, lambda _: "another")
    resume |= mark_letter("orders~1", 2, "a letter")
    assert is_another("orders", 0, 9, resume, lambda _: "another")


def test_marks_grow_as_the_offsets_do() -> None:
    marks = [mark_letter("orders", offset, f"letter {offset}")["orders#letter"] for offset in range(99)]
    assert marks == sorted(marks)
