"""Send a plan in growing steps, and stop when its letters die again or nobody consumes them.

After each step somebody watches until its letters are consumed: a consumer that still fails is found with a
handful of letters, one that is not there with a single one, and a healthy one gets the rest at full speed.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from dlq.core.errors import Busy, ConnectionLost, Unreachable
from dlq.core.runtime import patience
from dlq.replay.plans.destinations import Destination
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.apply import Run, Send
from dlq.replay.runs.consumed import (
    MISSING,
    Consumed,
    Standing,
    age,
    how_far_consumed,
    in_words,
    progress,
    up_to,
    worst_of,
)

_T = TypeVar("_T")
GROWTH = 10
_LOOK_SECONDS = 2.0
_SOON = 1.0
"""Seconds after which every broker tells of the letters of a step."""
_LOOK_SHARE = 3
"""A look pulls whole queues: at most a third of the time goes there."""


@dataclass
class RampStep:
    """One step: how many were sent, how many letters of the plan came back since the step before, and what
    shows that its letters were consumed."""

    sent: int
    came_back: int
    evidence: Consumed


@dataclass
class Ramp:
    """All steps. `harm`: letters of the plan that died again; `stopped_by`: why it went no further."""

    run: Run
    steps: list[RampStep] = field(default_factory=list)
    harm: int = 0
    stopped_by: str | None = None
    """harm, or no_evidence."""
    why: str = ""


@dataclass(frozen=True)
class Watch:
    """How a ramp sees what becomes of its letters."""

    ask: Callable[[Collection[Destination]], Standing]
    """How far the consumers of these places are."""
    look: Callable[[], Counter[str]]
    """Pull, and count the letters of the plan that have come back so far, by target."""
    wait: float
    """Seconds without any sign of a consumer after which a step is not consumed."""
    max_share: float
    """A step of which more than this share (0 to 1) came back is harm."""
    stop: Callable[[], bool]
    tell: Callable[[str], None] = lambda _text: None
    """What is waited for, again and again."""
    note: Callable[["Ramp"], None] = lambda _done: None
    """How far it is, after each step."""
    exact: Collection[Destination] = ()
    """Where each letter of a step has to be known as consumed, and nothing less goes on."""


def ramp(send: Send, watch: Watch, plan: str, total: int, places: Collection[Destination]) -> Ramp:
    """Send in steps of 1, 10, 100, ... letters to `places`; each is watched until its letters are consumed.

    Ends when all are sent, when `stop` says so, when a broker fails, when too many of a step have come back,
    or when nothing shows that they are consumed.
    """
    done = Ramp(Run(plan, total))
    known = watch.look()
    size, over = 1, False
    while not over:
        before, _ = insist(partial(watch.ask, places), watch.stop)
        step = send(size)
        add_step(done.run, step, first=not done.steps)
        if step.sent:
            watched = Watched(watch, step, before, known, _name(done))
            watched.run()
            judge(done, watched, watch)
            known = watched.known
            watch.note(done)
        done.run.stopped = step.stopped or watch.stop()
        over = bool(done.stopped_by or done.run.stopped or step.lost) or _is_last(step, size)
        size *= GROWTH
    return done


def _is_last(step: Run, size: int) -> bool:
    """Return whether a further step would find no letters, or those alone that this could not send."""
    tried = sum(step.outcomes.values())
    return tried < size or tried == step.outcomes.get("planned")


def _name(done: Ramp) -> str:
    """Name the step that was just sent: which of how many it is, and how much of the plan is out."""
    number, run = len(done.steps) + 1, done.run
    steps, left = 0, run.total - run.skipped
    while left > 0:
        left -= GROWTH**steps
        steps += 1
    return f"step {number} of {max(number, steps)}: {run.sent + run.skipped:,} of {run.total:,} sent"


def insist(ask: Callable[[], _T], stop: Callable[[], bool]) -> tuple[_T, float]:
    """Ask in the middle of a plan until there is an answer: another run may hold a source for a while, and a
    broker be away for a moment. Return it, and for how many seconds there was none. Raises Busy,
    BrokerError."""
    begun = time.monotonic()
    while True:
        waited = time.monotonic() - begun
        try:
            return ask(), waited
        except (Busy, Unreachable, ConnectionLost) as error:
            most = patience.BUSY if isinstance(error, Busy) else patience.RESTART
            if stop() or waited > most:
                raise
        _sleep(patience.RECHECK, stop)


def places_of(letters: Iterable[Letter]) -> set[Destination]:
    """Return where the letters of a plan go: pairs of a broker's name and a target."""
    return {(letter.broker, letter.target) for letter in letters}


class Watched:
    """One step that is being watched."""

    def __init__(self, watch: Watch, step: Run, before: Standing, known: Counter[str], name: str) -> None:
        self._watch, self.step, self._before, self._known_before = watch, step, before, known
        self._name = name
        self._begun = self._asked = time.monotonic()
        self.now = self._behind = before
        self.known = known
        self.evidence: Consumed = "unknown"
        self.lacks_evidence = False
        """Whether nothing may follow on this evidence."""
        self._patience = watch.wait
        self._last_sign = self._last_look = time.monotonic()
        self._look_pause = _LOOK_SECONDS
        self._best = progress(before)

    @property
    def came_back(self) -> int:
        """Letters of the plan that died again since the step before."""
        return (self.known - self._known_before).total()

    @property
    def _gone(self) -> Mapping[Destination, int]:
        """Letters of each place that died again, or that the broker has not confirmed. Of a target of two
        brokers nobody knows from which those came back."""
        back, step = self.known - self._known_before, self.step
        brokers = Counter(target for _, target in step.places)
        died = {place: back[str(place[1])] if brokers[place[1]] == 1 else 0 for place in step.places}
        return {place: died[place] + given - step.confirmed[place] for place, given in step.places.items()}

    @property
    def is_harm(self) -> bool:
        """Whether more of the step came back than `Watch.max_share` allows."""
        return self.came_back > self._watch.max_share * self.step.sent

    def run(self) -> None:
        """Run until the letters are consumed, came back, or nothing has moved for too long."""
        self._ask()
        self._best = progress(self.now)
        while self.evidence != "consumed" and not self.is_harm and self._has_patience():
            _sleep(patience.RECHECK, self._watch.stop)
            self._ask()
            if time.monotonic() - self._last_look > self._look_pause:
                self._look()
        if not self.is_harm:
            _sleep(min(patience.DEAD_LETTERED, self._watch.wait), self._watch.stop)
            self._look()

    def _has_patience(self) -> bool:
        return time.monotonic() - self._last_sign < self._patience and not self._watch.stop()

    def _ask(self) -> None:
        self._asked = time.monotonic()
        told = self._insist(partial(self._watch.ask, self.step.places))
        if self._asked - self._begun < _SOON:
            self._behind = told
        self.now = up_to(self._behind, told)
        self._patience = self._watch.wait + age(self.now)
        taken, acknowledged = progress(self.now)
        if taken > self._best[0] or acknowledged > self._best[1]:
            self._best = max(taken, self._best[0]), max(acknowledged, self._best[1])
            self._last_sign = time.monotonic()
        self._weigh()

    def _look(self) -> None:
        started, known = time.monotonic(), self.known
        self.known = self._insist(self._watch.look)
        self._last_look = time.monotonic()
        self._look_pause = max(_LOOK_SECONDS, _LOOK_SHARE * (self._last_look - started))
        if self.known.total() > known.total():
            self._last_sign = self._last_look
        self._weigh()

    def _insist(self, ask: Callable[[], _T]) -> _T:
        """Do as `insist`; that is no silence of consumers."""
        answer, waited = insist(ask, self._watch.stop)
        self._last_sign += waited
        return answer

    def _weigh(self) -> None:
        exact, rest = Counter[Destination](), Counter[Destination]()
        for place, sent in self.step.places.items():
            (exact if place in self._watch.exact else rest)[place] = sent
        proven = how_far_consumed(self._before, self.now, exact, self._gone, self._asked - self._begun)
        others = how_far_consumed(self._before, self.now, rest, self._gone)
        self.lacks_evidence = proven != "consumed" or others in MISSING
        self.evidence = worst_of((proven, others))
        left = max(0.0, self._patience - (time.monotonic() - self._last_sign))
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
        seen = in_words(self.now) or "it is not known who consumes"
        late = age(self.now)
        awaited = _AWAITED[self.evidence] + (f" (told up to {late:.0f} s late)" if late else "")
        self._watch.tell(
            f"{self._name}; waiting for {awaited} until {until}; {self.came_back:,} came back; {seen}"
        )


def judge(done: Ramp, watched: Watched, watch: Watch) -> None:
    """Add a step that was watched; where it lacks evidence that stops all."""
    step = RampStep(watched.step.sent, watched.came_back, watched.evidence)
    if step.sent:
        done.steps.append(step)
    done.harm += step.came_back
    if watched.is_harm:
        done.stopped_by = "harm"
        done.why = f"{step.came_back:,} of the last {step.sent:,} letters died again"
    elif watched.lacks_evidence and not watch.stop():
        done.stopped_by = "no_evidence"
        done.why = _NOT_CONSUMED[step.evidence].format(seen=in_words(watched.now))


_AWAITED: Mapping[Consumed, str] = {
    "consumed": "letters that come back",
    "taken": "letters that come back",
    "unknown": "letters that come back",
    "held": "acknowledgements",
    "waiting": "consumers to take them",
}
_NOT_CONSUMED = {
    "waiting": "nothing shows that the letters of this step are consumed: {seen}",
    "held": "consumers took the letters of this step and do not acknowledge them: {seen}",
    "taken": "nothing shows any more whether letters are acknowledged: {seen}",
    "unknown": "nothing shows any more whether letters are consumed",
}


def add_step(whole: Run, step: Run, first: bool) -> None:
    """Count a step; what a later one skips are the letters of the steps before."""
    whole.sent += step.sent
    whole.skipped += step.skipped if first else 0
    whole.seconds += step.seconds
    whole.lost += step.lost
    whole.changed += step.changed
    whole.refused = [*dict.fromkeys((*whole.refused, *step.refused))]
    whole.notes += step.notes
    whole.elsewhere = step.elsewhere
    for outcome, count in step.outcomes.items():
        whole.outcomes[outcome] = whole.outcomes.get(outcome, 0) + count


def _sleep(duration: float, stop: Callable[[], bool]) -> None:
    for _ in patience.tries(duration, patience.FETCH):
        if stop():
            return
