"""Transactions of AMQP 1.0: what is sent, or taken, in one is done whole when it is committed, or not at
all."""

import time
from collections.abc import Callable

from dlq.connectors.amqp10 import frames
from dlq.connectors.amqp10.session import ANSWER_SECONDS, Outcome, Session
from dlq.connectors.links import LinkLostError

_TURN_SECONDS = 1.0


class Transactions:
    """Those of one session. Every method may raise LinkLostError, or what the broker refuses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._coordinator = session.attach_to(frames.SENDER, frames.COORDINATOR)
        self._outcomes: dict[int, Outcome] = {}

    def begin(self) -> bytes:
        """The id of a new one."""
        self.until(lambda: self._coordinator.credit > 0)
        outcome = self.outcome_of(self._session.send(self._coordinator, frames.declare()))
        if outcome.code != frames.DECLARED or not outcome.fields:
            raise LinkLostError(f"the broker begins no transaction: {outcome.detail}")
        return bytes(outcome.fields[0])

    def end(self, transaction: bytes, fail: bool = False) -> int:
        """Commit it, or roll it back; the number that its outcome will name, which is ACCEPTED when that is
        done."""
        self.until(lambda: self._coordinator.credit > 0)
        return self._session.send(self._coordinator, frames.discharge(transaction, fail))

    def outcome_of(self, number: int) -> Outcome:
        """Wait for what became of one message that was sent."""
        self.until(lambda: number in self._known())
        return self._outcomes.pop(number)

    def _known(self) -> dict[int, Outcome]:
        for outcome in self._session.outcomes():
            if outcome.of_sent:
                numbers = range(outcome.first, min(outcome.last, outcome.first + 2**16) + 1)
                self._outcomes |= dict.fromkeys(numbers, outcome)
        return self._outcomes

    def until(self, is_so: Callable[[], bool]) -> None:
        """Read what the broker says until something is so."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise LinkLostError(f"no answer within {ANSWER_SECONDS:g} s")
            self._session.turn(_TURN_SECONDS)
