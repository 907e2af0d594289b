"""What an apply holds is written only while its lease lasts, however long the process was stopped."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.ledger_contract import MovingClock, letters

from dlq.archive.store import LocalStore
from dlq.connectors.base import Sent
from dlq.core.errors import ConnectionLost, SendingEnded
from dlq.replay.ledger import claims as module
from dlq.replay.ledger.claims import Claims
from dlq.replay.ledger.database import File
from dlq.replay.ledger.sql import SqlLedger
from dlq.replay.marks import Mark

LEASE = 30.0


class Host:
    """A ledger and an apply's claims, and a clock that a test moves for both."""

    def __init__(self, folder: Path) -> None:
        self.clock = MovingClock()
        self.ledger = SqlLedger(File(folder / "ledger.db"), LEASE, self.clock)
        self.ledger.owner = "north/1/x"
        self.claims = Claims(
            "plan", self.ledger, LEASE, Mark(LocalStore(str(folder)), "plan", "north/1/x", 9)
        )

    def uptime(self) -> float:
        return self.clock.moment / 1_000_000

    def hold(self, *numbers: int) -> None:
        self.claims.ask(letters(*numbers))
        found = self.claims.take_claimed()
        assert found is not None
        assert all(self.claims.take(letter) for letter in found[1])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(tmp_path)
    monkeypatch.setattr(module, "uptime", made.uptime)
    with closing(made.ledger):
        yield made


def test_a_lease_that_ended_unseen_is_taken_up_again_and_what_was_answered_needs_none(host: Host) -> None:
    host.hold(1, 2)
    host.clock.forward(3 * LEASE)
    host.claims.note_writing([1, 2])
    assert host.ledger.expire() == 0
    for number in (1, 2):
        host.claims.take_answer(Sent(number, "confirmed"))
    host.clock.forward(2 * LEASE)
    host.claims.note_writing([])


def test_nothing_is_written_when_it_took_too_long(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.hold(1)
    renew = host.ledger.renew

    def slow(keys: list[str]) -> set[str]:
        found = renew(keys)
        host.clock.forward(LEASE)
        return found

    monkeypatch.setattr(host.ledger, "renew", slow)
    host.clock.forward(LEASE / 2)
    with pytest.raises(ConnectionLost, match="lease ended"):
        host.claims.note_writing([1])


def test_who_was_told_once_that_nothing_more_is_sent_sends_nothing_more(host: Host) -> None:
    """Also where what another has taken over is answered, and the rest is still its own."""
    host.hold(1, 2)
    host.claims.note_writing([1])
    host.clock.forward(2 * LEASE)
    assert host.ledger.expire() == 2
    for numbers in ([2], []):
        with pytest.raises(SendingEnded, match="another run has taken over"):
            host.claims.note_writing(numbers)
    for number in (1, 2):
        host.claims.take_answer(Sent(number, "refused"))
    with pytest.raises(SendingEnded):
        host.claims.note_writing([])


def test_newer_claims_do_not_put_off_the_end_of_older_ones(host: Host) -> None:
    host.hold(1)
    host.clock.forward(LEASE / 4)
    host.hold(2)
    host.clock.forward(LEASE / 4)
    host.claims.note_writing([1])
    host.clock.forward(LEASE * 0.6)
    assert host.ledger.expire() == 0, "both were renewed when the older one wanted it"
