"""The contract of a ledger as tests: one suite for every store (see `dlq.replay.ledger`).

A test class inherits `LedgerContract` and gives an `opening` fixture: another ledger on the same store at
each call, which is empty at first.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from dlq.archive.schema import REPLAYS
from dlq.connectors.base import Target
from dlq.core.clock import Clock
from dlq.core.failures import make_event
from dlq.replay import dismissals
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.plans.letters import Letter
from dlq.replay.states import BY_OWNER, BY_RECONCILE, STATES, State

LEASE = 30.0
Opening = Callable[[Clock], Ledger]


class MovingClock:
    """Microseconds that a test moves."""

    def __init__(self) -> None:
        self.moment = 1_000_000_000

    def __call__(self) -> int:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += round(seconds * 1_000_000)


def letters(*numbers: int) -> list[Letter]:
    return [
        Letter(n, f"record{n}", f"key{n}", 1, "shop", "seg", n, Target("queue", "orders")) for n in numbers
    ]


def bring(ledger: Ledger, state: State, number: int = 1) -> str:
    """A letter into `state`; its key."""
    key = f"key{number}"
    ledger.claim("plan", letters(number))
    if state in ("confirmed", "returned", "refused", "in_doubt", "planned"):
        ledger.record_results([Result(key, state)])
    if state == "held":
        ledger.record_results([Result(key, "in_doubt")])
        ledger.resolve([key], "held", "word")
    return key


class LedgerContract:
    """What every ledger does."""

    @pytest.fixture
    def clock(self) -> MovingClock:
        return MovingClock()

    @pytest.fixture
    def ledger(self, opening: Opening, clock: MovingClock) -> Iterator[Ledger]:
        book = opening(clock)
        yield book
        book.close()

    @pytest.fixture
    def other(self, opening: Opening, clock: MovingClock, ledger: Ledger) -> Iterator[Ledger]:
        book = opening(clock)
        yield book
        book.close()

    def test_a_claim_belongs_to_one_and_is_given_once(self, ledger: Ledger, other: Ledger) -> None:
        assert ledger.claim("plan", letters(1, 2, 2)) == {"key1", "key2"}
        assert ledger.claim("plan", letters(1)) == set()
        assert other.claim("plan", letters(2, 3)) == {"key3"}

    def test_only_what_was_never_sent_can_be_claimed_again_by_the_same_plan(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        for number, state in enumerate(STATES):
            key = bring(ledger, state, number)
            assert other.claim("plan", letters(number)) == ({key} if state == "planned" else set()), state

    def test_another_plan_may_try_again_what_the_broker_did_not_take(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        for number, state in enumerate(STATES):
            key, may = bring(ledger, state, number), state in ("planned", "returned", "refused")
            assert other.claim("other plan", letters(number)) == ({key} if may else set()), state

    def test_a_plan_that_was_made_before_a_broker_did_not_take_it_tries_nothing_again(
        self, ledger: Ledger, other: Ledger, clock: MovingClock
    ) -> None:
        for number, state in enumerate(STATES):
            key, before, later = bring(ledger, state, number), clock.moment, clock.moment + 1
            may = {"planned": {before, later}, "returned": {later}, "refused": {later}}.get(state, set())
            for made in (before, later):
                told = "planned" if made in may else state
                assert ledger.states([key], "other plan", made) == {key: told}, (state, made)
                assert ledger.states([key], "plan", made) == {key: state}
            for made in (before, later):
                mine = {key} if made == min(may, default=0) else set()
                assert other.claim("other plan", letters(number), (), made) == mine, (state, made)

    def test_a_sender_and_reconcile_change_states_by_their_tables_only(self, ledger: Ledger) -> None:
        for number, (before, after) in enumerate(itertools.product(STATES, BY_OWNER)):
            key = bring(ledger, before, number)
            ledger.record_results([Result(key, after)])
            expected = after if before in BY_OWNER[after] else before
            assert ledger.states([key]) == {key: expected}, (before, after)
        for number, (before, after) in enumerate(itertools.product(STATES, BY_RECONCILE), 1000):
            key, is_legal = bring(ledger, before, number), before in BY_RECONCILE[after]
            assert ledger.resolve([key], after, "evidence") == is_legal
            assert ledger.states([key]) == {key: after if is_legal else before}, (before, after)

    def test_nobody_settles_the_claim_of_another(self, ledger: Ledger, other: Ledger) -> None:
        ledger.claim("plan", letters(1))
        other.record_results([Result("key1", "confirmed")])
        assert ledger.states(["key1"]) == {"key1": "sending"}

    def test_a_late_confirm_is_better_evidence_than_an_operators_word_until_another_sends_it(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        for number, state in ((1, "confirmed"), (2, "sending")):
            key = bring(ledger, "in_doubt", number)
            ledger.resolve([key], "planned", "word")
            if state == "sending":
                other.claim("plan", letters(number))
            ledger.record_results([Result(key, "confirmed")])
            assert ledger.states([key]) == {key: state}

    def test_a_lease_that_ends_is_doubt_and_never_sent_again(
        self, ledger: Ledger, other: Ledger, clock: MovingClock
    ) -> None:
        ledger.claim("plan", letters(1))
        clock.forward(LEASE - 1)
        assert other.expire() == 0
        clock.forward(2)
        assert other.expire() == 1
        assert other.states(["key1"]) == {"key1": "in_doubt"}
        assert [entry.owner for entry in other.entries("plan", "in_doubt")] == [ledger.owner]
        assert other.claim("plan", letters(1)) == set()

    def test_a_renewed_lease_lasts_longer_unless_it_went_into_doubt(
        self, ledger: Ledger, other: Ledger, clock: MovingClock
    ) -> None:
        ledger.claim("plan", letters(1, 2))
        other.resolve(["key1"], "in_doubt", "evidence")
        clock.forward(LEASE - 1)
        assert ledger.renew(["key1", "key2"]) == {"key2"}
        clock.forward(2)
        assert other.expire() == 0

    def test_settlements_and_the_next_claim_are_one_step(self, ledger: Ledger) -> None:
        ledger.claim("plan", letters(1))
        assert ledger.claim("plan", letters(2), [Result("key1", "returned", "NO_ROUTE")]) == {"key2"}
        assert ledger.states(["key1", "key2", "key3"]) == {"key1": "returned", "key2": "sending"}

    def test_whatever_a_broker_says_can_be_noted(self, ledger: Ledger) -> None:
        ledger.claim("plan", letters(1))
        ledger.record_results([Result("key1", "refused", "no \0 \ud800 way")])
        [entry] = ledger.entries("plan", "refused")
        assert entry.detail == r"no \0 \ud800 way"

    def test_of_an_endless_reason_the_beginning_is_noted(self, ledger: Ledger) -> None:
        """A text of more than a megabyte counts as damage."""
        ledger.claim("plan", letters(1))
        ledger.record_results([Result("key1", "in_doubt", "no" * 2**20)])
        ledger.resolve(["key1"], "held", "yes" * 2**20)
        [entry] = ledger.entries("plan", "held")
        assert entry.detail == ("yes" * 10_000)[:10_000]

    def test_entries_come_in_the_order_of_the_plan(self, ledger: Ledger) -> None:
        ledger.claim("plan", letters(3, 1, 2))
        ledger.claim("other", letters(4))
        ledger.record_results([Result(f"key{n}", "in_doubt", "gone") for n in (1, 2, 3, 4)])
        assert [(e.number, e.record_id, e.detail) for e in ledger.entries("plan", "in_doubt")] == [
            (n, f"record{n}", "gone") for n in (1, 2, 3)
        ]
        assert [entry.number for entry in ledger.entries("plan", "in_doubt", 2)] == [2, 3]
        assert ledger.counts("plan") == {"in_doubt": 3}

    def test_what_another_plan_tries_again_has_its_place_in_that_plan(self, ledger: Ledger) -> None:
        bring(ledger, "returned")
        again = letters(1)[0]._replace(number=7, record_id="record7")
        ledger.claim("other", [again])
        assert [(e.number, e.record_id) for e in ledger.entries("other", "sending")] == [(7, "record7")]

    def test_everything_comes_out_in_columns(self, ledger: Ledger) -> None:
        ledger.claim("plan", letters(1, 2))
        [columns] = ledger.rows()
        assert dict(zip(REPLAYS.names, columns, strict=True))["record_id"] == ("record1", "record2")

    def test_what_another_ledger_held_is_taken_in_once_and_ends_with_its_lease(
        self, ledger: Ledger, clock: MovingClock
    ) -> None:
        bring(ledger, "in_doubt")
        ledger.claim("plan", letters(2))
        [rows] = ledger.all_rows()
        moved = [(f"moved {key}", *rest) for key, *rest in rows]
        assert [ledger.adopt([*rows, *moved]) for _ in range(2)] == [2, 0]
        assert sorted(row for chunk in ledger.all_rows() for row in chunk) == sorted([*rows, *moved])
        assert {entry.key for entry in ledger.entries("plan", "in_doubt")} == {"key1", "moved key1"}
        clock.forward(LEASE + 1)
        assert ledger.expire() == 2

    def test_a_dismissal_is_known_until_it_is_taken_back(self, ledger: Ledger, clock: MovingClock) -> None:
        def known() -> list[dict[str, object]]:
            rows = (row for chunk in ledger.rows() for row in zip(*chunk, strict=True))
            return [dict(zip(REPLAYS.names, row, strict=True)) for row in rows]

        assert dismissals.dismiss(ledger, ["record1", "record2"], "stale", clock) == 2
        assert dismissals.dismiss(ledger, ["record1"], "again", clock) == 0
        assert dismissals.find_dismissed(ledger, ["record1", "record3"]) == {"record1"}
        assert {(row["record_id"], row["state"]) for row in known()} == {
            (one, "dismissed") for one in ("record1", "record2")
        }
        details = [str(row["detail"]) for row in known()]
        assert all(one.startswith("stale (") and "@" in one for one in details)
        assert dismissals.undo(ledger, ["record1", "record3"]) == 1
        assert dismissals.find_dismissed(ledger, ["record1", "record2"]) == {"record2"}
        assert len(known()) == 1

    def test_taking_back_leaves_replays_alone(self, ledger: Ledger) -> None:
        ledger.claim("plan", letters(1))
        assert ledger.forget(["key1"]) == 0
        assert ledger.states(["key1"]) == {"key1": "sending"}

    def test_what_two_say_of_one_failure_stands_in_the_order_of_writing(
        self, ledger: Ledger, other: Ledger
    ) -> None:
        hostile = "it's \x1b[31m; DROP TABLE events; -- \u202e 日本 😀"
        mine = make_event(9, "ann@a", "f1", "assign", "ann")
        theirs = make_event(5, "bob@b", "f1", "note", "", hostile)
        ledger.append([mine])
        other.append([theirs])
        assert ledger.events() == other.events() == [mine, theirs]

    def test_an_event_that_is_written_again_stays_as_it_was(self, ledger: Ledger) -> None:
        first = make_event(1, "ann@a", "f1", "resolve", "", "mended")
        ledger.append([first])
        ledger.append([first._replace(reason="another"), make_event(2, "bob@b", "f1", "reopen")])
        assert [event.reason for event in ledger.events()] == ["mended", ""]
