"""The letters that are ours at the moment: claimed in the ledger, on their way, or answered.

A letter is claimed before it is sent, and what became of the ones before is written with the next
claim. Claimed and in flight together are never more than one window.
"""

import time
from collections.abc import Sequence

from dlq.connectors.base import Sent
from dlq.replay.ledger import Ledger, Settlement
from dlq.replay.letters import Letter

_FRESH_SHARE = 0.5
"""When this part of a lease has passed, it is renewed before anything else is sent."""


class Claims:
    """The claims of one apply on one broker."""

    def __init__(self, plan: str, ledger: Ledger, lease: float) -> None:
        """`lease` in seconds, as the ledger's."""
        self._plan, self._ledger = plan, ledger
        self._fresh_for = lease * _FRESH_SHARE
        self._fresh_until = (0.0, 0.0)
        self._unsent: dict[int, Letter] = {}
        self._in_flight: dict[int, Letter] = {}
        self._results: list[Settlement] = []

    def claim(self, letters: Sequence[Letter]) -> list[Letter]:
        """Those of `letters` that are ours to send, in their order; the others are known to the ledger."""
        ours = self._ledger.claim(self._plan, letters, self._results)
        self._results = []
        self._start_lease()
        claimed = []
        for letter in letters:
            if letter.key in ours:
                ours.remove(letter.key)  # an archive that holds a letter twice must not send it twice
                claimed.append(letter)
        self._unsent = {letter.number: letter for letter in claimed}
        return claimed

    def take(self, letter: Letter) -> bool:
        """It is given to the broker now, unless it is no longer ours; from then on it is in flight."""
        if not self._is_fresh():
            self._renew()
        if self._unsent.pop(letter.number, None) is None:
            return False
        self._in_flight[letter.number] = letter
        return True

    def answered(self, sent: Sent) -> None:
        """What became of a letter in flight; written with the next claim."""
        letter = self._in_flight.pop(sent.number)
        self._results.append(Settlement(letter.key, sent.outcome, sent.detail))

    def end(self, why: str) -> None:
        """Write what is known: what was not sent is planned again, what was not answered is in doubt."""
        unsent = [Settlement(letter.key, "planned") for letter in self._unsent.values()]
        unknown = [Settlement(letter.key, "in_doubt", why) for letter in self._in_flight.values()]
        self._ledger.settle([*self._results, *unsent, *unknown])
        self._results, self._unsent, self._in_flight = [], {}, {}

    def _renew(self) -> None:
        held = [*self._unsent.values(), *self._in_flight.values()]
        ours = self._ledger.renew([letter.key for letter in held])
        self._start_lease()
        self._unsent = {number: letter for number, letter in self._unsent.items() if letter.key in ours}

    def _start_lease(self) -> None:
        self._fresh_until = (time.monotonic() + self._fresh_for, time.time() + self._fresh_for)

    def _is_fresh(self) -> bool:
        """By both clocks: one stands still while the machine sleeps, the other can be set back."""
        return time.monotonic() < self._fresh_until[0] and time.time() < self._fresh_until[1]
