"""Transactions of AMQP 1.0: what is sent, or taken, in one is done whole when it is committed, or not at
all."""

import time
from collections.abc import Iterable

from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.link.session import Outcome, Session
from dlq.connectors.net.links import SilentLinkError
from dlq.core.text import for_terminal


class Transactions:
    """Those of one session. Every method may raise LinkLostError, or what the broker refuses."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._coordinator = session.attach_to(frames.SENDER, frames.COORDINATOR)
        self._outcomes: dict[int, Outcome] = {}

    def begin(self) -> bytes:
        """Return the id of a new one."""
        self._session.wait_until(lambda: self._coordinator.credit > 0)
        outcome = self.outcome_of(self._session.send(self._coordinator, frames.declare()))
        begun = outcome.fields[0] if outcome.code == frames.DECLARED and outcome.fields else None
        if not isinstance(begun, bytes):
            raise SilentLinkError(f"the broker begins no transaction: {for_terminal(outcome.detail)}")
        return begun

    def end(self, transaction: bytes, fail: bool = False) -> int:
        """Commit it, or roll it back; the number that its outcome will name: ACCEPTED when that is done."""
        self._session.wait_until(lambda: self._coordinator.credit > 0)
        return self._session.send(self._coordinator, frames.discharge(transaction, fail))

    def outcome_of(self, number: int) -> Outcome:
        """Wait for what became of one message that was sent."""
        return self.outcomes_of([number])[0]

    def outcomes_of(self, numbers: Iterable[int]) -> list[Outcome]:
        """Wait for the outcomes of several transfers; all are one answer, which may take as long as one."""
        until = time.monotonic() + self._session.patience
        return [self._outcome_until(number, until) for number in numbers]

    def _outcome_until(self, number: int, until: float) -> Outcome:
        self._session.wait_until(lambda: number in self._collect_outcomes(), until=until)
        return self._outcomes.pop(number)

    def _collect_outcomes(self) -> dict[int, Outcome]:
        for outcome in self._session.outcomes():
            if outcome.of_sent:
                self._outcomes[outcome.number] = outcome
        return self._outcomes
