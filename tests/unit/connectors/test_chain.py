"""Queues that are read one after the other: one that cannot be read is named, and the others are read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.analyzers.letters import record
from support.rows import each_row

from dlq.connectors.base import Batch
from dlq.connectors.chain import ChainOfTwo, ChainReading
from dlq.core.errors import AccessDenied, ConnectionLost, DlqError, HarmRefused, NoLeader, NotFound


@dataclass
class Member:
    """A queue of numbered letters, which may refuse when it is begun, or when letters are asked for."""

    queue: str
    depth: int | None
    refuses: DlqError | None = None
    at_once: bool = True
    given: int = 0
    """Letters that come before it refuses."""
    stays: int = 0
    """Letters that no acknowledgement will cover."""
    topology: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    complete: bool = False
    position: int = 0
    acknowledged: int = 0
    beats: int = 0
    closed: bool = False
    marks_redelivered: bool = False
    alike: bool = False
    seen = property(lambda self: self.position)
    snapshot = property(lambda self: self.depth)

    def begin(self, limit: int | None) -> "Member":
        if self.refuses and self.at_once:
            raise self.refuses
        return self

    def batches(self) -> Iterator[Batch]:
        self.position = self.given if self.refuses else self.depth or 0
        if self.position:
            yield Batch((), self.position)
        if self.refuses:
            raise self.refuses
        if self.stays:
            yield Batch([record()] * self.stays, self.position, stays=True)
        self.complete = True

    def acknowledge(self, position: int) -> None:
        self.acknowledged = position

    def settled_position(self) -> int:
        return self.acknowledged

    def stay_alive(self) -> None:
        self.beats += 1

    def close(self) -> None:
        self.closed = True


REFUSALS = [AccessDenied("held"), NotFound("gone"), NoLeader("no leader"), HarmRefused("harm")]


@each_row("at_once", [True, False])
@each_row("why", REFUSALS, ids=lambda why: type(why).__name__)
def test_the_others_are_read_and_the_one_is_named(why: DlqError, at_once: bool) -> None:
    bad = Member("bad", 2, why, at_once)
    reading = ChainReading([Member("a", 3), bad, Member("z", 4)], "drain", None)
    assert [batch.position for batch in reading.batches()] == [3, 7]
    reading.acknowledge(7)
    assert reading.settled_position() == 7
    assert not reading.complete
    assert f"not read: bad: {why}" in reading.notes
    assert bad.closed != at_once


def test_what_stays_of_one_queue_comes_behind_all_queues_and_keeps_none_from_being_settled() -> None:
    members = [Member("a", 3, stays=2), Member("m", 0), Member("n", None, stays=1), Member("z", 4)]
    reading = ChainReading(members, "drain", None)
    shown = [(batch.position, len(batch.records)) for batch in reading.batches()]
    assert shown == [(3, 0), (7, 0), (7, 0), (9, 2), (9, 0), (10, 1)]
    reading.acknowledge(10)
    assert (reading.settled_position(), reading.complete) == (7, True)
    assert [member.closed for member in members] == [True, False, True, False]


def test_one_that_was_refused_before_is_named_too() -> None:
    reading = ChainReading([Member("a", 3)], "drain", None, unread={"bad": AccessDenied("held")})
    assert [batch.position for batch in reading.batches()] == [3]
    assert not reading.complete
    assert "not read: bad: held" in reading.notes


def test_where_none_can_be_read_the_first_error_is_raised() -> None:
    with pytest.raises(AccessDenied, match="held"):
        ChainReading([], "drain", None, unread={"bad": AccessDenied("held"), "b": NotFound("gone")})
    reading = ChainReading([Member("a", 3, AccessDenied("held"))], "drain", None)
    with pytest.raises(AccessDenied, match="held"):
        list(reading.batches())


def test_a_lost_connection_and_letters_that_were_given_are_no_reason_to_go_on() -> None:
    cut, late = Member("a", 3, ConnectionLost("cut")), Member("a", 3, AccessDenied("late"), False, given=2)
    for member in (cut, late):
        reading = ChainReading([member, Member("z", 4)], "drain", None)
        with pytest.raises((ConnectionLost, AccessDenied)):
            list(reading.batches())


def test_what_one_way_does_not_show_of_a_queue_the_other_does() -> None:
    first, rest, left = Member("a", 3), Member("a", 4), []
    reading: Any = ChainOfTwo(first, lambda most: left.append(most) or rest, 7)  # type: ignore[arg-type,func-returns-value]
    assert [batch.position for batch in reading.batches()] == [3, 7]
    assert (left, reading.complete, first.beats) == ([4], True, 1)
    reading.alike = True
    settled = []
    for position in (2, 5, 7):
        reading.acknowledge(position)
        settled.append(reading.settled_position())
    assert settled == [2, 5, 7]
    reading.close()
    assert (first.alike, first.closed) == (rest.alike, rest.closed) == (True, True)


def test_a_limit_that_one_way_reaches_needs_no_other() -> None:
    first: Any = Member("a", 3)
    reading = ChainOfTwo(first, lambda _most: pytest.fail("it is not asked"), 3)
    assert [batch.position for batch in reading.batches()] == [3]
    assert reading.complete
