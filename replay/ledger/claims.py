"""The letters that are ours at the moment: claimed in the ledger, given to a publisher, written, or answered.

A letter is claimed before it is sent, and what became of the ones before is written with the next
claim. One that its publisher never wrote is planned again, however the sending ended. The ledger works on
the next letters while these are sent; asked for, claimed and in flight together are never more than one
window.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from dlq.connectors.base import Outcome, Sent
from dlq.core.clock import uptime
from dlq.core.errors import DlqError, SendingEnded
from dlq.replay import dismissals
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.marks import Mark
from dlq.replay.states import State

FRESH_SHARE = 1 / 3
"""When this part of a lease has passed, it is renewed before anything else is sent."""
_WRITING_SHARE = 2 / 3
"""When this part has passed, nothing is written any more: in the rest the kernel sends what it holds, or
drops it. Whoever takes over when the lease is over finds what there is to be found."""
UNSENT_SHARE = 1 - _WRITING_SHARE
"""For how long of a lease the kernel may hold what was written."""


class _Asked(NamedTuple):
    """Letters that the ledger is asked for, and the results that it writes with them."""

    letters: Sequence[Letter]
    results: list[Result]
    since: float
    ours: Future[set[str]]


class Claims:
    """The claims of one apply on one broker."""

    def __init__(self, plan: str, ledger: Ledger, lease: float, mark: Mark, made: int) -> None:
        """`lease` in seconds, as the ledger's; `made`: see `Ledger.claim`."""
        self._plan, self._ledger, self._mark, self._made = plan, ledger, mark, made
        self._lease = lease
        self._since = -lease
        """Since when the oldest lease of what is held runs, by `uptime`; the ledger counts it from later."""
        self._writer = ThreadPoolExecutor(1, "ledger")
        self._asked: _Asked | None = None
        self._unsent: dict[int, Letter] = {}
        self.in_flight: dict[int, Letter] = {}
        self.written: set[int] = set()
        """Numbers of those in flight that may be at the broker."""
        self._results: list[Result] = []
        self.is_over = False
        """Whether the lease has ended, so that nothing more may be sent."""
        self.doubtful: list[Letter] = []
        """Those of which nobody knows whether they are at the broker."""
        self.given_back: list[Letter] = []
        """Those that were ours, and are planned again."""

    def ask(self, letters: Sequence[Letter]) -> None:
        """Start to claim these; `claimed` says which are ours. One call at a time is open."""
        results, self._results = self._results, []
        since = uptime()
        ours = self._writer.submit(self._claim, letters, results)
        self._asked = _Asked(letters, results, since, ours)

    def _claim(self, letters: Sequence[Letter], results: Sequence[Result]) -> set[str]:
        """Return the keys that are ours; of what was dismissed since the plan was made, none."""
        closed = dismissals.find_dismissed(self._ledger, [letter.record_id for letter in letters])
        open_ = [letter for letter in letters if letter.record_id not in closed]
        return self._ledger.claim(self._plan, open_, results, self._made)

    def take_claimed(self) -> tuple[int, list[Letter]] | None:
        """Return how many were asked for, and those of them that are ours, in their order; the others are
        known to the ledger. None when nothing was asked for. Raises ArchiveError."""
        if self._asked is None:
            return None
        asked, self._asked = self._asked, None
        try:
            ours = set(asked.ours.result())
        except DlqError:
            self._results = [*asked.results, *self._results]
            raise
        claimed = []
        for letter in asked.letters:
            if letter.key in ours:
                ours.remove(letter.key)  # an archive that holds a letter twice must not send it twice
                claimed.append(letter)
        self._since = min(self._since, asked.since) if self.in_flight else asked.since
        self._unsent = {letter.number: letter for letter in claimed}
        return len(asked.letters), claimed

    def take(self, letter: Letter) -> bool:
        """Take a letter for a publisher, unless it is no longer ours; from then on it is in flight."""
        self.renew_in_time()
        if self._unsent.pop(letter.number, None) is None:
            return False
        self.in_flight[letter.number] = letter
        return True

    def note_writing(self, numbers: Sequence[int]) -> None:
        """Note that these letters in flight may reach the broker from now on, and those before them may go on
        to. Raises SendingEnded when that must not be, from then on for ever, and as the ledger."""
        is_late = self.renew_in_time()
        if self.is_over or (is_late and self._has_passed(_WRITING_SHARE)):
            self.is_over = True
            raise SendingEnded("the lease ended while this run was stopped, so nothing more is sent")
        self._mark.note_writing(numbers)
        self.written.update(numbers)

    def take_answer(self, sent: Sent) -> tuple[Letter, State]:
        """Return a letter in flight, and what became of it; written with the next claim."""
        letter = self.in_flight.pop(sent.number)
        if sent.outcome == "confirmed":
            self._mark.confirm(sent.number)
        state = self._state_of(letter, sent.outcome)
        self.written.discard(sent.number)
        self._results.append(Result(letter.key, state, sent.detail))
        return letter, state

    def _state_of(self, letter: Letter, outcome: Outcome) -> State:
        """Return the state for an outcome: a letter that was never written is in no doubt."""
        if outcome == "unsent" or (outcome == "in_doubt" and letter.number not in self.written):
            self.given_back.append(letter)
            return "planned"
        if outcome == "in_doubt":
            self.doubtful.append(letter)
        return outcome

    def end(self, why: str) -> None:
        """Write what is known: what was not written is planned again, what was not answered is in doubt."""
        unsent = list(self._unsent.values())
        failure: DlqError | None = None
        try:
            unsent += (self.take_claimed() or (0, []))[1]
        except DlqError as error:
            failure = error
        self._writer.shutdown()
        self._give_back(unsent)
        unknown = [Result(one.key, self._state_of(one, "in_doubt"), why) for one in self.in_flight.values()]
        self._ledger.record_results([*self._results, *unknown])
        self._results, self._unsent, self.in_flight, self.written = [], {}, {}, set()
        if failure is not None:
            raise failure

    def _give_back(self, letters: Sequence[Letter]) -> None:
        self._results += [Result(letter.key, "planned") for letter in letters]
        self.given_back += letters

    def renew_in_time(self) -> bool:
        """Renew what is held, where it is time; return whether it was, so that the clock has to be looked at
        again. Raises SendingEnded when another run has taken over what is in flight."""
        if not self._has_passed(FRESH_SHARE):
            return False
        asked = self._asked.letters if self._asked else ()
        held = [letter.key for letter in (*asked, *self._unsent.values(), *self.in_flight.values())]
        since = uptime()
        ours = self._ledger.renew(held)
        if any(letter.key not in ours for letter in self.in_flight.values()):
            self.is_over = True
            raise SendingEnded("another run has taken over letters of this one, so nothing more is sent")
        self._since = since
        self._give_back([letter for letter in self._unsent.values() if letter.key not in ours])
        self._unsent = {number: letter for number, letter in self._unsent.items() if letter.key in ours}
        return True

    def _has_passed(self, share: float) -> bool:
        return uptime() - self._since >= share * self._lease
