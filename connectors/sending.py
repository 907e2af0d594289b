"""The engine of the ways back: each letter is answered once, whatever the broker says, or does not say.

A publisher of a broker is a `WindowedPublisher` that says how a letter is written (`put`), how answers are
taken (`poll`), and how the connection is ended at once (`cut`) and in order (`end`). The engine owns the
rest: how many are in flight, which of them go alone, that nothing is answered twice or never, that what is
open when the connection ends is in doubt, and that nobody waits for ever.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dlq.connectors.base import NO_EVIDENCE, Evidence, Outgoing, Publisher, Sent, Writing, keep_no_mark
from dlq.connectors.net.links import LinkLostError
from dlq.core.errors import ConnectionLost, DlqError

_FILL_SECONDS = 0.005
"""Letters are taken for so long at most: what was taken is to be sent."""
_PATIENCE = 0.1
_FREE_ENOUGH = 0.75
"""A full window is waited for until it is no fuller than that, so that many letters are sent together."""


class RefusedTogether(NamedTuple):
    """A letter was refused with others, perhaps for one of them, and nothing of them is stored: it goes once
    more, alone."""

    number: int
    detail: str


class Untaken(NamedTuple):
    """The broker never took it, which is proven: it goes again as if it had just been given."""

    number: int


class WindowedPublisher:
    """See `Publisher`. A broker's subclass overrides `put` and what else differs there, and appends to
    `answers`; any method of it may raise DlqError or LinkLostError, by which the connection has ended."""

    heavy_bytes: float = math.inf
    """A letter with a longer body goes while nothing else is in flight: what it does to the connection is
    known to be its doing."""
    silent_seconds: float = math.inf
    """How long no answer may come while letters are in flight."""

    anchor: Evidence = NO_EVIDENCE

    def __init__(self, window: int, place: str = "") -> None:
        """`place` names the broker in errors."""
        self._window, self._place = window, place
        self.answers: list[Sent | RefusedTogether | Untaken] = []
        """What the broker has answered; of that, what answers nothing in flight is dropped."""
        self.in_flight: dict[int, Outgoing] = {}
        """What was given to `put` and is not answered, in that order."""
        self._alone: deque[Outgoing] = deque()
        """What was taken, and waits until nothing is in flight."""
        self._again: deque[Outgoing] = deque()
        """What was taken, and goes before anything else is."""
        self._lone: int | None = None
        """The number of the last one that was sent so."""
        self._is_full = self._is_over = self._is_closed = False
        self._heard = 0.0
        self._failure: DlqError | None = None
        self._writing: Writing = keep_no_mark

    def put(self, letter: Outgoing) -> None:
        """Send it now, or with the next `poll`; `announce` is called before. Raises ValueError, with the
        reason, before anything of it is written: it is refused then."""
        raise NotImplementedError

    def poll(self, wait: float) -> None:
        """Write what waits in buffers, and take the answers that are there, waiting at most `wait` seconds
        for the first."""

    def goes_alone(self, letter: Outgoing) -> bool:
        """Return whether it goes while nothing else is in flight. Asked each time that it is to go."""
        return letter.record.body_size > self.heavy_bytes

    def has_room(self) -> bool:
        """Return whether another letter may be given now, as far as broker and connection are concerned."""
        return True

    def cut(self) -> None:
        """Write nothing more that was not written yet. Answers may be appended. Never raises."""

    def end(self) -> None:
        """Let go of the connection, of which nothing is awaited any more. Never raises."""

    def announce(self, numbers: Sequence[int]) -> None:
        """See `Publisher.publish`: tell of letters before they are written."""
        self._writing(numbers)

    def is_alone(self) -> bool:
        """Return whether what is in flight is one letter that was sent alone."""
        return self._lone in self.in_flight

    def hear(self) -> None:
        """Note that the broker is not silent, or may be."""
        self._heard = time.monotonic()

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """See `Publisher.publish`. Raises ConnectionLost, or what the broker ended the connection over."""
        if self._failure is not None:
            raise self._failure
        self._writing, self._is_over = writing, False
        while not self._is_over or self.in_flight or self._alone or self._again:
            try:
                self._fill(outgoing)
                self.poll(0.0 if self.answers or self._takes_more() else _PATIENCE)
                self._look_at_the_clock()
            except LinkLostError as error:
                self._failure = ConnectionLost(f"{self._place}: the connection ended: {error}")
            except DlqError as error:
                self._failure = error
            yield from self._settle()
            if self._failure is not None:
                yield from self._give_up(str(self._failure))
                raise self._failure

    def close(self) -> None:
        """See `Publisher.close`. With letters in flight (the caller gave up) the connection is cut."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.in_flight:
            self.cut()
        self.end()

    def _fill(self, outgoing: Iterator[Outgoing]) -> None:
        is_first, until = not self.in_flight, time.monotonic() + _FILL_SECONDS
        while self._takes_more() and time.monotonic() < until:
            if self._alone:
                letter = self._alone.popleft()
                self._lone = letter.number
                self._put(letter)
            elif (given := self._again.popleft() if self._again else next(outgoing, None)) is None:
                self._is_over = True
            elif self.goes_alone(given):
                self._alone.append(given)
            else:
                self._put(given)
        if is_first:  # nothing was awaited, however long the next letter took to come
            self.hear()

    def _takes_more(self) -> bool:
        """Return whether a letter may be put now: one that goes alone, or another one."""
        if self._alone:
            return not self.in_flight and self.has_room()
        if (self._is_over and not self._again) or self.is_alone():
            return False
        held = len(self.in_flight) + len(self.answers)
        self._is_full = held >= self._window * (_FREE_ENOUGH if self._is_full else 1)
        return not self._is_full and self.has_room()

    def _put(self, letter: Outgoing) -> None:
        self.in_flight[letter.number] = letter
        try:
            self.put(letter)
        except ValueError as error:
            self.answers.append(Sent(letter.number, "refused", str(error)))

    def _look_at_the_clock(self) -> None:
        if self.answers:
            self.hear()
        elif self.in_flight and time.monotonic() - self._heard > self.silent_seconds:
            raise ConnectionLost(f"{self._place}: no answer to {len(self.in_flight)} letters in flight")

    def _settle(self) -> list[Sent]:
        """Return the answers to be handed on."""
        answers, self.answers = self.answers, []
        return [sent for answer in answers if (sent := self._settle_one(answer)) is not None]

    def _settle_one(self, answer: Sent | RefusedTogether | Untaken) -> Sent | None:
        """Return the outcome; None where it answers nothing, or the letter goes once more."""
        letter = self.in_flight.pop(answer.number, None)
        if letter is None:
            return None
        if isinstance(answer, Sent):
            return answer
        if isinstance(answer, Untaken):
            self._again.append(letter)
            return None
        if answer.number == self._lone:
            return Sent(answer.number, "refused", answer.detail)
        self._alone.append(letter)
        return None

    def _give_up(self, why: str) -> list[Sent]:
        """Return what is known at the end: nothing of what is in flight, and that the rest is not sent."""
        self.cut()
        answers = self._settle()
        answers += [Sent(number, "in_doubt", why) for number in self.in_flight]
        answers += [Sent(letter.number, "unsent", why) for letter in (*self._again, *self._alone)]
        for held in (self.in_flight, self._again, self._alone):
            held.clear()
        return answers


class TwoWayPublisher:
    """Each run of letters of one kind goes by the protocol of its kind, in the order of the plan; the second
    is connected to when there is one for it."""

    def __init__(
        self, first: Publisher, second: Callable[[], Publisher], goes_second: Callable[[Outgoing], bool]
    ) -> None:
        self._first, self._connect, self._goes_second = first, second, goes_second
        self.anchor = first.anchor
        self._second: Publisher | None = None
        self._next: Outgoing | None = None

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        """See `Publisher.publish`."""
        self._next = next(outgoing, None)
        try:
            while self._next is not None:
                publisher = self._publisher_of(self._next)
                yield from publisher.publish(self._run(outgoing), writing)
        except DlqError as error:
            if self._next is not None:
                yield Sent(self._next.number, "unsent", str(error))
            raise

    def _publisher_of(self, letter: Outgoing) -> Publisher:
        if not self._goes_second(letter):
            return self._first
        if self._second is None:
            self._second = self._connect()
        return self._second

    def _run(self, outgoing: Iterator[Outgoing]) -> Iterator[Outgoing]:
        """Yield letters up to the first of the other kind, which waits."""
        kind = self._goes_second(self._next) if self._next else False
        while self._next is not None and self._goes_second(self._next) is kind:
            letter, self._next = self._next, None
            yield letter
            self._next = next(outgoing, None)

    def close(self) -> None:
        """See `Publisher.close`."""
        self._first.close()
        if self._second is not None:
            self._second.close()
