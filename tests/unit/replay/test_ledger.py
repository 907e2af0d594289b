"""The ledger: one owner a key, no state is left except by a legal way, a dead owner leaves doubt."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.archive.store import LocalStore
from dlq.connectors.base import Target
from dlq.core.errors import ArchiveError
from dlq.core.settings import Settings
from dlq.replay.ledger import REPLAYS, Settlement, as_arrow, opened_if_any
from dlq.replay.letters import Letter
from dlq.replay.sql_ledger import SqlLedger
from dlq.replay.states import BY_OWNER, BY_RECONCILE, STATES, State

LEASE = 30.0


class Clock:
    """Microseconds that a test moves."""

    def __init__(self) -> None:
        self.moment = 1_000_000_000

    def __call__(self) -> int:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += round(seconds * 1_000_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[SqlLedger]:
    book = SqlLedger(f"sqlite:///{path}", LEASE, clock)
    yield book
    book.close()


@pytest.fixture
def other(path: Path, clock: Clock, ledger: SqlLedger) -> Iterator[SqlLedger]:
    book = SqlLedger(f"sqlite:///{path}", LEASE, clock)
    yield book
    book.close()


def letters(*numbers: int) -> list[Letter]:
    return [
        Letter(n, f"record{n}", f"key{n}", 1, "shop", "seg", n, Target("queue", "orders")) for n in numbers
    ]


def bring(ledger: SqlLedger, state: State) -> None:
    """Letter 1 into `state`."""
    ledger.claim("plan", letters(1))
    if state in ("confirmed", "returned", "refused", "in_doubt", "planned"):
        ledger.settle([Settlement("key1", state)])
    if state == "held":
        ledger.settle([Settlement("key1", "in_doubt")])
        ledger.resolve(["key1"], "held", "word")


def test_a_claim_belongs_to_one(ledger: SqlLedger, other: SqlLedger) -> None:
    assert ledger.claim("plan", letters(1, 2)) == {"key1", "key2"}
    assert other.claim("plan", letters(2, 3)) == {"key3"}


def test_claiming_twice_gives_nothing_the_second_time(ledger: SqlLedger) -> None:
    ledger.claim("plan", letters(1))
    assert ledger.claim("plan", letters(1)) == set()


def test_a_letter_that_stands_twice_in_one_claim_is_one_key(ledger: SqlLedger) -> None:
    assert ledger.claim("plan", letters(1, 1)) == {"key1"}


@pytest.mark.parametrize("state", STATES)
def test_only_what_was_never_sent_can_be_claimed_again_by_the_same_plan(
    ledger: SqlLedger, other: SqlLedger, state: State
) -> None:
    bring(ledger, state)
    assert other.claim("plan", letters(1)) == ({"key1"} if state == "planned" else set())


@pytest.mark.parametrize("state", STATES)
def test_another_plan_may_try_again_what_the_broker_did_not_take(
    ledger: SqlLedger, other: SqlLedger, state: State
) -> None:
    bring(ledger, state)
    may = state in ("planned", "returned", "refused")
    assert other.claim("other plan", letters(1)) == ({"key1"} if may else set())


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, BY_OWNER)))
def test_a_sender_changes_states_by_the_table_only(ledger: SqlLedger, before: State, after: State) -> None:
    bring(ledger, before)
    ledger.settle([Settlement("key1", after)])
    assert ledger.states(["key1"]) == {"key1": after if before in BY_OWNER[after] else before}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STATES, BY_RECONCILE)))
def test_reconcile_changes_states_by_the_table_only(ledger: SqlLedger, before: State, after: State) -> None:
    bring(ledger, before)
    moved = ledger.resolve(["key1"], after, "evidence")
    is_legal = before in BY_RECONCILE[after]
    assert moved == is_legal
    assert ledger.states(["key1"]) == {"key1": after if is_legal else before}


def test_nobody_settles_the_claim_of_another(ledger: SqlLedger, other: SqlLedger) -> None:
    ledger.claim("plan", letters(1))
    other.settle([Settlement("key1", "confirmed")])
    assert ledger.states(["key1"]) == {"key1": "sending"}


def test_a_late_confirm_is_better_evidence_than_an_operators_word(ledger: SqlLedger) -> None:
    bring(ledger, "in_doubt")
    ledger.resolve(["key1"], "planned", "word")
    ledger.settle([Settlement("key1", "confirmed")])
    assert ledger.states(["key1"]) == {"key1": "confirmed"}


def test_a_late_confirm_comes_too_late_when_another_sends_it_already(
    ledger: SqlLedger, other: SqlLedger
) -> None:
    bring(ledger, "in_doubt")
    ledger.resolve(["key1"], "planned", "word")
    other.claim("plan", letters(1))
    ledger.settle([Settlement("key1", "confirmed")])
    assert ledger.states(["key1"]) == {"key1": "sending"}


def test_a_lease_that_ends_is_doubt_and_never_sent_again(
    ledger: SqlLedger, other: SqlLedger, clock: Clock
) -> None:
    ledger.claim("plan", letters(1))
    clock.forward(LEASE - 1)
    assert other.expire() == 0
    clock.forward(2)
    assert other.expire() == 1
    assert other.states(["key1"]) == {"key1": "in_doubt"}
    assert other.claim("plan", letters(1)) == set()


def test_a_renewed_lease_lasts_longer(ledger: SqlLedger, other: SqlLedger, clock: Clock) -> None:
    ledger.claim("plan", letters(1))
    clock.forward(LEASE - 1)
    assert ledger.renew(["key1"]) == {"key1"}
    clock.forward(2)
    assert other.expire() == 0


def test_what_went_into_doubt_cannot_be_renewed(ledger: SqlLedger, other: SqlLedger, clock: Clock) -> None:
    ledger.claim("plan", letters(1, 2))
    other.resolve(["key1"], "in_doubt", "evidence")
    assert ledger.renew(["key1", "key2"]) == {"key2"}


def test_a_dead_owner_on_this_host_is_seen_at_once(path: Path, ledger: SqlLedger) -> None:
    script = """
import os, sys
sys.path[:0] = [sys.argv[2]]
from test_ledger import letters
from dlq.replay.sql_ledger import SqlLedger
SqlLedger(f"sqlite:///{sys.argv[1]}", 3600).claim("plan", letters(1))
os._exit(9)
"""
    here = os.path.dirname(__file__)
    assert subprocess.run([sys.executable, "-c", script, str(path), here], check=False).returncode == 9
    assert ledger.states(["key1"]) == {"key1": "sending"}
    assert ledger.expire() == 1
    [entry] = ledger.entries("plan", "in_doubt")
    assert entry.detail == "its sender died before the answer came"


def test_processes_that_race_for_the_same_keys_share_none(path: Path, ledger: SqlLedger) -> None:
    script = """
import sys
sys.path[:0] = [sys.argv[2]]
from test_ledger import letters
from dlq.replay.sql_ledger import SqlLedger
ledger = SqlLedger(f"sqlite:///{sys.argv[1]}", 3600)
for start in range(0, 1000, 50):
    print(*ledger.claim("plan", letters(*range(start, start + 50))))
"""
    command = [sys.executable, "-c", script, str(path), os.path.dirname(__file__)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    claimed = [key for racer in racers for key in racer.communicate()[0].split()]
    assert sorted(claimed) == sorted(f"key{n}" for n in range(1000))


def test_a_claim_is_on_the_disk_before_anything_is_sent(ledger: SqlLedger) -> None:
    with ledger._database.engine.connect() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
        ]
    assert settings == ["wal", 2]


def test_settlements_and_the_next_claim_are_one_step(ledger: SqlLedger) -> None:
    ledger.claim("plan", letters(1))
    assert ledger.claim("plan", letters(2), [Settlement("key1", "returned", "NO_ROUTE")]) == {"key2"}
    assert ledger.states(["key1", "key2", "key3"]) == {"key1": "returned", "key2": "sending"}


def test_entries_come_in_the_order_of_the_plan(ledger: SqlLedger) -> None:
    ledger.claim("plan", letters(3, 1, 2))
    ledger.claim("other", letters(4))
    ledger.settle([Settlement(f"key{n}", "in_doubt", "gone") for n in (1, 2, 3, 4)])
    assert [(e.number, e.record_id, e.detail) for e in ledger.entries("plan", "in_doubt")] == [
        (n, f"record{n}", "gone") for n in (1, 2, 3)
    ]
    assert ledger.counts("plan") == {"in_doubt": 3}


def test_everything_comes_out_in_columns(ledger: SqlLedger) -> None:
    ledger.claim("plan", letters(1, 2))
    [columns] = ledger.rows()
    assert dict(zip(REPLAYS.names, columns, strict=True))["record_id"] == ("record1", "record2")


def test_a_ledger_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="unable to open"):
        SqlLedger(f"sqlite:///{tmp_path}/missing/ledger.db", LEASE)


def test_looking_makes_no_ledger(config: Settings, store: LocalStore) -> None:
    assert as_arrow(config.ledger, store) is None
    with opened_if_any(config.ledger, store) as book:
        assert book is None
    assert store.list("ledger") == []
