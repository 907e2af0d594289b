"""The engine of the ways back over a broker that does all that one may do: answers late, twice, out of order,
for letters that it never got, or never, and ends the connection at any call."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq.connectors import sending
from dlq.connectors.base import Outgoing, Sent, Target
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.sending import RefusedTogether, Untaken, WindowedPublisher
from dlq.core.errors import ConnectionLost, DlqError, NotFound
from dlq.core.record import Record

HEAVY = 100
Draw = Callable[[st.SearchStrategy[Any]], Any]
FAILURES = (LinkLostError("gone"), ConnectionLost("gone"), NotFound("no such queue"))


def letter(number: int, size: int = 1) -> Outgoing:
    record = Record(f"{number:032x}", "orders", "shop", "rabbitmq", "dlq", body_size=size)
    return Outgoing(number, record, Target("queue", "orders"), {})


class Simple(WindowedPublisher):
    """Confirms nothing until it is told to."""

    silent_seconds = 0.05

    def __init__(self, window: int = 10) -> None:
        super().__init__(window, "shop")
        self.ended: list[str] = []

    def put(self, letter: Outgoing) -> None:
        self.announce([letter.number])

    def cut(self) -> None:
        self.ended.append("cut")

    def end(self) -> None:
        self.ended.append("end")


class Scripted(Simple):
    """What the broker does is drawn at each call. It stores a letter when it is written, and writes what it
    was given at the next `poll`."""

    heavy_bytes, silent_seconds = HEAVY, WindowedPublisher.silent_seconds

    def __init__(self, window: int, draw: Draw) -> None:
        super().__init__(window)
        self.draw = draw
        self.buffered: list[Outgoing] = []
        self.stored: Counter[int] = Counter()
        self.pending: list[int] = []
        self.alone: set[int] = set()
        self.tries: Counter[int] = Counter()
        self.most = 0

    def _perhaps_cut(self) -> None:
        if self.draw(st.integers(0, 30)) == 30:
            raise self.draw(st.sampled_from(FAILURES))

    def put(self, letter: Outgoing) -> None:
        assert not self.ended
        self.tries[letter.number] += 1
        assert self.tries[letter.number] <= 3, "it goes once more, and alone once"
        self._perhaps_cut()
        if letter.record.body_size > HEAVY or letter.number in self.alone:
            assert list(self.in_flight) == [letter.number], "it goes alone"
        assert not any(one.record.body_size > HEAVY for one in [*self.in_flight.values()][:-1])
        if self.draw(st.integers(0, 10)) == 10:
            raise ValueError("it cannot be encoded")
        self.buffered.append(letter)
        self.most = max(self.most, len(self.in_flight))
        self._perhaps_cut()

    def poll(self, wait: float) -> None:
        assert not self.ended
        self._perhaps_cut()
        for letter in self.buffered:
            self.announce([letter.number])
            self.pending.append(letter.number)
        self.buffered.clear()
        self._perhaps_cut()
        if wait or self.draw(st.booleans()):
            for number in self.draw(st.permutations(self.pending))[: self.draw(st.integers(1, 5))]:
                self._answer(number)
        strange = self.draw(st.sampled_from([None, -1, 40]))
        if strange is not None:
            self.answers.append(Sent(strange, "confirmed"))
        self._perhaps_cut()

    def _answer(self, number: int) -> None:
        self.pending.remove(number)
        kind = self.draw(st.sampled_from(["confirmed", "returned", "refused", "together", "untaken"]))
        if kind == "untaken" and self.tries[number] < 2:
            self.answers.append(Untaken(number))
        elif kind == "together":
            self.alone.add(number)
            self.answers.append(RefusedTogether(number, "one of them is too large"))
        else:
            self.stored[number] += kind == "confirmed"
            self.answers += [Sent(number, kind)] * self.draw(st.integers(1, 2))

    def has_room(self) -> bool:
        return not self.draw(st.booleans())

    def cut(self) -> None:
        super().cut()
        for number in self.pending[: self.draw(st.integers(0, 2))]:  # what had come before the end
            self.stored[number] += 1
            self.answers.append(Sent(number, "confirmed"))


@settings(max_examples=4 * settings.default.max_examples)
@given(st.data(), st.integers(1, 8), st.lists(st.sampled_from([1, HEAVY, HEAVY + 1]), max_size=25))
def test_each_letter_is_answered_once_whatever_the_broker_does(
    data: st.DataObject, window: int, sizes: Sequence[int]
) -> None:
    clock = SimpleNamespace(monotonic=partial(next, count(step=0.001)))  # moved by the calls alone
    with patch.object(sending, "time", clock):
        check_a_run(data.draw, window, sizes)


def check_a_run(draw: Draw, window: int, sizes: Sequence[int]) -> None:
    publisher, taken = Scripted(window, draw), list[int]()
    told: set[int] = set()
    answered: dict[int, Sent] = {}

    def letters() -> Iterator[Outgoing]:
        for number, size in enumerate(sizes):
            taken.append(number)
            assert len(taken) - len(answered) <= 2 * window + 1
            yield letter(number, size)

    error: DlqError | None = None
    try:
        for sent in publisher.publish(letters(), told.update):
            assert sent.number in taken, "it was never given"
            assert sent.number not in answered, "it is answered twice"
            assert sent.outcome != "confirmed" or publisher.stored[sent.number] == 1
            answered[sent.number] = sent
    except DlqError as failure:
        error = failure
    assert sorted(answered) == sorted(taken)
    assert publisher.most <= window
    unsent = {number for number, sent in answered.items() if sent.outcome == "unsent"}
    assert not unsent & set(+publisher.stored), "the broker has nothing of it"
    assert error or not unsent
    in_doubt = {number for number, sent in answered.items() if sent.outcome == "in_doubt"}
    if error is None:
        assert (len(taken), in_doubt, publisher.ended) == (len(sizes), set(), [])
    else:
        assert publisher.ended == ["cut"]
        assert all(str(error) == answered[number].detail for number in in_doubt)
        with pytest.raises(type(error)):
            list(publisher.publish(iter([letter(99)])))
    assert set(+publisher.stored) <= told
    assert {publisher.stored[number] for number in set(+publisher.stored) - in_doubt} <= {1}
    publisher.close()
    publisher.close()
    assert publisher.ended.count("end") == 1


def test_a_broker_that_falls_silent_leaves_what_is_in_flight_in_doubt() -> None:
    answers: list[Sent] = []
    with pytest.raises(ConnectionLost, match="shop: no answer to 3 letters in flight"):
        answers.extend(Simple().publish(map(letter, range(3))))
    assert [(sent.number, sent.outcome) for sent in answers] == [(n, "in_doubt") for n in range(3)]


def test_what_waits_to_go_once_more_when_the_connection_ends_is_in_no_doubt() -> None:
    """The broker had refused one, perhaps for another, and never taken the other."""

    class Ending(Simple):
        def poll(self, wait: float) -> None:
            if 0 in self.in_flight:
                self.answers += [RefusedTogether(0, "one of them is too large"), Untaken(1)]
            else:
                raise LinkLostError("gone")

    answers: list[Sent] = []
    with pytest.raises(ConnectionLost):
        answers.extend(Ending(3).publish(map(letter, range(3))))
    assert {sent.number: sent.outcome for sent in answers} == {0: "unsent", 1: "unsent", 2: "in_doubt"}


def test_a_caller_that_gives_up_cuts_what_is_in_flight_and_one_that_has_all_ends_in_order() -> None:
    def letters() -> Iterator[Outgoing]:
        yield letter(0)
        raise KeyError

    dying = Simple()
    with pytest.raises(KeyError):
        list(dying.publish(letters()))
    dying.close()
    assert dying.ended == ["cut", "end"]
    idle = Simple()
    idle.close()
    assert idle.ended == ["end"]
