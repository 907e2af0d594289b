"""Send a plan in order: at most one letter of each key is on its way, and the next of a key goes when it is
shown that the one before was consumed or, where the plan says so, that the broker has it.

A key stops at a letter that died again, that the broker did not take, or of which nobody knows; the others go
on. All that is known stands in the ledger and in the archive, so that whoever applies the plan again goes on.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from dlq.core.errors import UsageError
from dlq.replay.dismissals import find_dismissed
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans.destinations import Destination
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.planfile import Header
from dlq.replay.runs.apply import Run, Send
from dlq.replay.runs.consumed import Standing
from dlq.replay.runs.elsewhere import find_gone, list_since
from dlq.replay.runs.ramp import GROWTH, Ramp, Watch, Watched, add_step, insist, judge
from dlq.replay.states import MAY_SEND, MAY_SEND_AGAIN

DIED_AGAIN, SENT_ELSEWHERE = "died_again", "sent_elsewhere"


@dataclass(slots=True)
class _Line:
    """The letters of one key in their order; `at`: the first that has not gone."""

    business_key: str
    turns: list[Letter]
    at: int = 0

    @property
    def front(self) -> Letter | None:
        """Whose turn it is; None: all have gone."""
        return self.turns[self.at] if self.at < len(self.turns) else None


class Stopped(NamedTuple):
    """A key that does not go on."""

    key: str
    record_id: str
    """The letter at which it stopped."""
    why: str
    """DIED_AGAIN, SENT_ELSEWHERE by another plan since this was made, or the letter's state."""
    left: Sequence[str]
    """Its letters that wait for that, by their record ids."""


class Turns:
    """Whose turn it is, of all letters of a plan. A letter without a key is a line of its own."""

    def __init__(
        self, letters: Iterable[Letter], book: Ledger, header: Header, going: pa.Table | None = None
    ) -> None:
        """`going`: `elsewhere.list_going`, for who sends."""
        self._book, self._header, self.plan = book, header, header.plan
        self._going = going
        self._released = {
            one.value for one in book.events() if one.action == "release" and one.subject == self.plan
        }
        """Letters (record ids) at which their keys do not stop."""
        self._lines: dict[object, _Line] = {}
        self._line_of: dict[str, _Line] = {}
        for letter in letters:
            name = (letter.broker, letter.business_key) if letter.business_key else letter.number
            line = self._lines.setdefault(name, _Line(letter.business_key, []))
            line.turns.append(letter)
            self._line_of[letter.key] = line
        self._sent: set[str] = set()
        self._dead: set[str] = set()
        self._elsewhere: dict[int, str] = {}
        self._stops: dict[int, tuple[_Line, Letter, str]] = {}
        self._next: Mapping[int, Letter] = {}

    @property
    def out(self) -> Collection[str]:
        """The ledger's keys of letters that were sent, or may be now."""
        return self._sent | {turn.key for turn in self._next.values()}

    @property
    def next(self) -> Sequence[Letter]:
        """The letters whose turn it is, in the order of the plan."""
        return [letter for _, letter in sorted(self._next.items())]

    @property
    def known(self) -> int:
        """How many letters have had their turn."""
        return sum(line.at for line in self._lines.values())

    @property
    def elsewhere(self) -> Mapping[str, int]:
        """Where letters whose turn came had gone by another plan, in words -> how many."""
        return Counter(self._elsewhere.values())

    @property
    def waits_for_evidence(self) -> bool:
        """Whether letters were sent, and others may go now."""
        return bool(self._sent and self._next)

    def list_left(self) -> list[str]:
        """Return the record ids of all that have not gone."""
        return [turn.record_id for line in self._lines.values() for turn in line.turns[line.at :]]

    def note_dead(self, keys: Iterable[str]) -> Counter[str]:
        """Note that the letters of these replays are dead again; return target -> how many are by now."""
        self._dead.update(key for key in keys if key in self._line_of)
        return Counter(str(self._turn_of(key).target) for key in self._dead)

    def learn(self) -> None:
        """Ask the ledger how far each key is."""
        others = list_since(self._book, self._header, self._going)
        self._stops, ready = {}, []
        asked = [line for line in self._lines.values() if line.front]
        while asked:
            fronts = [(line, front) for line in asked if (front := line.front)]
            asked = []
            states = self._states_of([front for _, front in fronts], others)
            for (line, front), state in zip(fronts, states, strict=True):
                if self._has_gone(front, state):
                    line.at += 1
                    asked.append(line)
                elif state in MAY_SEND:
                    ready.append((line, front))
                else:
                    self._stops[id(line)] = line, front, state
        for key in self._dead:
            self._stop_at_dead(key)
        self._next = {front.number: front for line, front in ready if id(line) not in self._stops}

    def _states_of(self, fronts: Sequence[Letter], others: pa.Table) -> Iterator[str]:
        """Yield what became of each, also by what `others` have sent since."""
        states = self._book.states([one.key for one in fronts], self.plan, self._header.made_at)
        closed = find_dismissed(self._book, [one.record_id for one in fronts])
        gone = find_gone(self._book, self._header, others, fronts)
        for one in fronts:
            state: str = states.get(one.key, "planned")
            if one.record_id in closed and state in (*MAY_SEND, *MAY_SEND_AGAIN):
                state = "dismissed"
            elif one.number in gone:
                state, self._elsewhere[one.number] = SENT_ELSEWHERE, gone[one.number]
            yield state

    def _has_gone(self, front: Letter, state: str) -> bool:
        if state == "confirmed":
            self._sent.add(front.key)
        is_passed = front.record_id in self._released and state in _RELEASED
        return is_passed or state in ("confirmed", "dismissed")

    def _turn_of(self, key: str) -> Letter:
        return next(turn for turn in self._line_of[key].turns if turn.key == key)

    def _stop_at_dead(self, key: str) -> None:
        line, turn = self._line_of[key], self._turn_of(key)
        if turn.record_id not in self._released:
            self._stops.setdefault(id(line), (line, turn, DIED_AGAIN))

    def list_stopped(self) -> list[Stopped]:
        """Return the keys that do not go on, of which letters wait."""
        found = [
            Stopped(line.business_key, turn.record_id, why, _ids_but(line.turns[line.at :], turn))
            for line, turn, why in self._stops.values()
        ]
        return [one for one in found if one.left]

    def release(self, keys: Collection[str]) -> list[str]:
        """Let these keys go on; the letters (record ids) at which they had stopped. Raises UsageError for a
        key that the plan has not, or of which a letter is in doubt."""
        passed: list[str] = []
        known = {line.business_key for line in self._lines.values()} - {""}
        for key in keys:
            if key not in known:
                raise UsageError(
                    f"--release {key}: no letter of plan {self.plan} has that key; name one that stopped"
                )
            while stops := [one for one in self.list_stopped() if one.key == key]:
                for one in stops:
                    if one.why not in (DIED_AGAIN, *_RELEASED):
                        raise UsageError(
                            f"--release {key}: its letter {one.record_id} is in doubt; run dlq replay "
                            f"reconcile {self.plan} first"
                        )
                    passed.append(one.record_id)
                self._released.update(passed)
                self.learn()
        return passed


_RELEASED: Collection[str] = (*MAY_SEND_AGAIN, "held", SENT_ELSEWHERE)
"""What may be with a letter when others of its key may go, where somebody says so."""


def _ids_but(turns: Iterable[Letter], without: Letter) -> list[str]:
    return [turn.record_id for turn in turns if turn is not without]


def send_in_turns(
    send: Send,
    turns: Turns,
    watch: Watch,
    start: Run,
    known: Counter[str],
    places: Collection[Destination],
    size: int | None = None,
) -> Ramp:
    """Send in waves, one letter of each key at most, until no letter may go, a broker fails, or `watch` says
    stop. `known` are dead again, by target. The consumers of `places` are watched; for others the
    broker's confirm is enough. Waves grow from `size`, where it is given."""
    done = Ramp(start)
    if watch.exact and turns.waits_for_evidence:
        before = Run(start.plan, start.total, places=Counter(dict.fromkeys(watch.exact, 0)))
        standing, _ = insist(partial(watch.ask, watch.exact), watch.stop)
        known = _watch(replace(watch, max_share=math.inf), done, before, standing, known)
        turns.learn()
    while (some := turns.next) and not (done.stopped_by or done.run.stopped):
        standing, _ = insist(partial(watch.ask, places), watch.stop)
        wave = send(size, some)
        add_step(done.run, wave, first=False)
        wave.places = Counter({place: count for place, count in wave.places.items() if place in places})
        if wave.places:
            known = _watch(watch, done, wave, standing, known)
        done.run.stopped = wave.stopped or watch.stop()
        turns.learn()
        if wave.lost or not wave.sent:
            break
        size = size and size * GROWTH
    return done


def _watch(watch: Watch, done: Ramp, wave: Run, before: Standing, known: Counter[str]) -> Counter[str]:
    """Watch until all of a wave are consumed, or nothing shows it; return target -> how many died again."""
    run = done.run
    name = f"wave {len(done.steps) + 1}: {run.sent + run.skipped:,} of {run.total:,} sent"
    watched = Watched(watch, wave, before, known, name)
    watched.run()
    judge(done, watched, watch)
    watch.note(done)
    return watched.known
