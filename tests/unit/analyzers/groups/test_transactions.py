"""Did the money move? Every state of a transaction, from the records that a broker leaves."""

from collections import defaultdict
from itertools import count
from typing import Any, NamedTuple

import pytest
from support.rows import each_row

from dlq.analyzers.groups import transactions
from dlq.analyzers.groups.transactions import (
    Member,
    Node,
    Transaction,
    conclude,
    ended_copies,
    offsets,
    resolve,
)

BORN = 1_795_000_000_000_000
MINUTE = 60_000_000
HOUR = 60 * MINUTE
NAMELESS = "h|1|orders|x"
"""The unique key that stands in for a producer's that gave none."""
TWINS = "broker-c"
"""Where the twins of other nodes' half messages were committed."""
NODE = Node(BORN + 9 * MINUTE + 1_000_000, 72, 30_000, 33_000, indexed=True)
NUMBERS = count()


class Ends(NamedTuple):
    """An op record."""

    text: str
    stored: int = 2 * MINUTE
    seen: int = 10 * MINUTE


class Stored(NamedTuple):
    """A record of the transaction of this key."""

    key: str
    member: Member


def record(
    key: str, role: str, stored: int, node: str = "broker-a", seen: int = 10 * MINUTE, **facts: Any
) -> Stored:
    name = None if key == NAMELESS else key
    times = {"captured_at": BORN + stored + seen, "dead_at": BORN + stored, "published_at": BORN}
    member = Member(
        node, f"{next(NUMBERS):04d}", role, message_id=name, **{**times, "origin": "orders", **facts}
    )
    return Stored(key, member)


def half(key: str, offset: int, checks: int | None = None, stored: int = MINUTE, **facts: Any) -> Stored:
    of_half = {"offset": offset, "position": 100 * offset, "checks": checks, "producer_group": "tx"}
    return record(key, "half", stored, **{**of_half, **facts})


def real(key: str, prepared: int, stored: int = 2 * MINUTE, **facts: Any) -> Stored:
    return record(key, "real", stored, prepared=prepared, origin=None, **facts)


def given_up(key: str, checks: int = 15, stored: int = 8 * MINUTE, **facts: Any) -> Stored:
    return record(key, "discarded", stored, checks=checks, producer_group="tx", **facts)


class Case(NamedTuple):
    """The records of a transaction, and what is concluded."""

    records: list[Stored]
    state: str
    is_discarded: bool = False
    reached: str = "no"
    """Whether a check reached the producer."""
    letter: tuple[str, str, str] | None = None
    """The one record that stands for it: its role, its cause, and its mechanism."""
    evidence: str | None = None


PENDING, UNSEEN = ("half", "transaction_pending", "none"), ("half", "unknown", "none")
EXCEEDED = ("discarded", "check_max_exceeded", "check")
CASES = {
    "young": Case([half("young", 0)], "pending", letter=PENDING, evidence="1 half copies, 0 checks counted"),
    "committed": Case([half("committed", 1), real("committed", 100)], "committed", evidence=
        "1 half copies, 0 checks counted; ended at 2026-11-18T11:08:40Z; the real message is there"),
    "rolled-back": Case([half("rolled-back", 2)], "rolled_back", evidence=
        "1 half copies, 0 checks counted; ended at 2026-11-18T11:15:40Z; no real message, though it would still be retained"),
    "unseen-end": Case([half("unseen-end", 3, seen=100 * HOUR)], "ended", letter=UNSEEN),
    "checked-out": Case(
        [half("checked-out", 4), half("checked-out", 5, checks=15, stored=7 * MINUTE), given_up("checked-out")],
        "check_max_exceeded", True, "unknown", EXCEEDED,
        "2 half copies, 15 checks counted; discarded at 2026-11-18T11:14:40Z after 15 checks"),
    "too-old": Case(
        [half("too-old", 6), given_up("too-old", checks=1, stored=73 * HOUR)],
        "check_skipped", True, "unknown", ("discarded", "check_skipped", "check_age"),
        "1 half copies, 1 checks counted; discarded at 2026-11-21T12:06:40Z after 1 checks; by then older than the retention of 72 h"),
    "both": Case(
        [half("both", 7), half("both", 8, checks=1, stored=2 * MINUTE), real("both", 700), given_up("both")],
        "committed", True, "unknown", EXCEEDED),
    "refused-late": Case([half("refused-late", 9), given_up("refused-late")], "rolled_back", True, "unknown", EXCEEDED),
    "answered": Case(
        [half("answered", 10), half("answered", 11, checks=1, stored=2 * MINUTE), real("answered", 1100)], "committed", reached="yes"),
    "resumed": Case(
        [half("resumed", 12), given_up("resumed", stored=3 * MINUTE), half("resumed", 13, stored=5 * MINUTE)],
        "pending", True, "unknown", PENDING,
        "2 half copies, 15 checks counted; discarded at 2026-11-18T11:09:40Z after 15 checks; its check was resumed since"),
    "just-now": Case(
        [half("just-now", 14, node="broker-b", seen=1_000_000), given_up("just-now", node="broker-b", stored=9 * MINUTE, seen=1_000_000)],
        "pending", True, "unknown", ("discarded", "transaction_pending", "none"),
        "1 half copies, 15 checks counted; discarded at 2026-11-18T11:15:40Z after 15 checks; a late outcome is still possible: pull again"),
    "immune": Case(
        [half("immune", 15, immunity=3600), half("immune", 16, checks=15, immunity=3600), given_up("immune")],
        "check_max_exceeded", True, letter=EXCEEDED),
    "twice": Case([half("twice", 17), real("twice", 1700), real("twice", 1701, stored=3 * MINUTE)], "committed", evidence=
        "1 half copies, 0 checks counted; ended at 2026-11-18T11:08:40Z; the real message is there, written 2 times"),
    "elsewhere": Case([half("elsewhere", 2, node="broker-b")], "pending", letter=PENDING),
    NAMELESS: Case([half(NAMELESS, 18)], "ended", letter=UNSEEN, evidence=
        "1 half copies, 0 checks counted; ended at 2026-11-18T11:08:40Z; it has no unique key to look its real message up by"),
    "orphan": Case(
        [half("orphan", 19), given_up("orphan"), half("orphan", 3, node=TWINS), real("orphan", 300, node=TWINS)],
        "committed", True, "unknown", EXCEEDED,
        "1 half copies, 15 checks counted; its twin on broker-c was committed: the real message is there; discarded at 2026-11-18T11:14:40Z after 15 checks"),
}  # fmt: skip
RECORDS = [one for case in CASES.values() for one in case.records]
ENDS = [Ends("1"), Ends("2, 9,\n", 9 * MINUTE), Ends("17,11,7,18,noise,"), Ends("3,", seen=100 * HOUR)]


def told(records: list[Stored], ends: list[Ends] = ENDS) -> dict[str, list[Transaction]]:
    """The transactions of each key; the op records are of broker-a."""
    ended = of_ends([one.member for one in records], ends)
    by_key: dict[str, list[Member]] = defaultdict(list)
    for key, one in records:
        ended_at, seen_at = ended.get(one.record_id, (None, None))
        by_key[key].append(one._replace(ended_at=ended_at, end_seen_at=seen_at))
    nodes = dict.fromkeys(("broker-a", "broker-b", TWINS), NODE)
    return {key: resolve(key, sorted(members, key=in_time), nodes) for key, members in by_key.items()}


def of_ends(members: list[Member], ends: list[Ends]) -> dict[str, tuple[int | None, int]]:
    ended: dict[str, tuple[int | None, int]] = {}
    for offset in {offset for one in ends for offset in offsets(one.text)}:
        copies = [
            (one.record_id, one.dead_at)
            for one in members
            if one.role == "half" and one.broker_node == "broker-a" and one.offset == offset
        ]
        times = [(BORN + e.stored, BORN + e.stored + e.seen) for e in ends if offset in offsets(e.text)]
        ended |= {name: (at, seen_at) for name, at, seen_at in ended_copies(copies, times)}
    return ended


def in_time(one: Member) -> tuple[str, int, int, str]:
    return one.broker_node, one.dead_at or 0, one.offset or 0, one.record_id


def alone(*members: Member, node: Node | None = None) -> Transaction:
    """The one transaction of a few records of one node."""
    [only] = resolve("k", members, {"n": node} if node else {})
    return only


def copy(number: int, role: str = "half", **facts: Any) -> Member:
    return Member("n", f"{number:04d}", role, **{"message_id": "k", "dead_at": BORN + number, **facts})


@pytest.fixture(scope="module")
def known() -> dict[str, Transaction]:
    return {key: found[0] for key, found in told(RECORDS).items()}


def test_every_transaction_has_its_state_and_evidence(known: dict[str, Transaction]) -> None:
    for key, case in CASES.items():
        found = known[key]
        said = (found.state, found.discarded, found.check_reached_producer)
        assert said == (case.state, case.is_discarded, case.reached), key
        assert case.evidence in (None, found.evidence), key


def test_one_record_stands_for_a_transaction_that_needs_somebody(known: dict[str, Transaction]) -> None:
    of_a_twin = {one.member.record_id for one in RECORDS if one.member.broker_node == TWINS}
    classified = [
        (key, one.role, conclude(known[key], one.record_id))
        for key, one in RECORDS
        if one.record_id not in of_a_twin
    ]
    letters = [(key, (role, s.cause, s.mechanism)) for key, role, s in classified if s.cause is not None]
    assert sorted(letters) == sorted((key, case.letter) for key, case in CASES.items() if case.letter)
    assert all(s.beside_the_letter == (s.cause is None) for _, _, s in classified)
    assert {s.mechanism for _, _, s in classified if s.beside_the_letter} == {"none"}
    assert all(
        (s.transaction_state, s.evidence) == (known[k].state, known[k].evidence) for k, _, s in classified
    )


def test_an_op_record_is_of_no_transaction_and_no_letter() -> None:
    assert conclude(None, "any") == (None, None, None, None, True)


def test_a_transactions_columns_tell_its_story(known: dict[str, Transaction]) -> None:
    it = known["checked-out"]
    assert (it.checks, it.copies, it.topic, it.producer_group) == (15, 2, "orders", "tx")
    assert (it.broker_node, len(it.record_ids), it.real_record_id) == ("broker-a", 3, None)
    assert (it.first_seen, it.last_seen) == (BORN + MINUTE, BORN + 8 * MINUTE)
    assert known["both"].real_record_id is not None


def test_a_transaction_that_was_committed_on_one_node_is_committed_on_both() -> None:
    orphan, twin = told(RECORDS)["orphan"]
    assert (twin.broker_node, twin.state, twin.letter) == (TWINS, "committed", None)
    assert orphan.state == "committed"


def test_what_an_op_record_names_are_numbers() -> None:
    assert list(offsets("7")) == [7]
    assert list(offsets("7, 12,\n")) == [7, 12]
    assert list(offsets("noise,1.5,,1_0")) == []
    assert list(offsets(None)) == []


COPIES = [("older", 10), ("newer", 20), ("undated", None)]
ENDED: list[tuple[str, list[tuple[int | None, int]], list[tuple[str, int | None, int]]]] = [
    ("the newest copy that is older", [(15, 100)], [("older", 15, 100)]),
    ("one of the same time is no younger", [(20, 100)], [("newer", 20, 100)]),
    ("of an unknown time is older than any", [(5, 100)], [("undated", 5, 100)]),
    ("without a time it means the newest", [(None, 100)], [("newer", None, 100)]),
    ("said twice: first ended, last seen", [(25, 100), (21, 200)], [("newer", 21, 200)]),
    ("said once without a time", [(None, 300), (21, 200)], [("newer", 21, 300)]),
    ("each its own copy", [(15, 1), (30, 2)], [("older", 15, 1), ("newer", 30, 2)]),
    ("nothing ends nothing", [], []),
]


@each_row(("ends", "found"), [row for _, *row in ENDED], ids=[name for name, *_ in ENDED])
def test_an_offset_means_the_newest_copy_there_that_is_older_than_the_op_record(
    ends: list[tuple[int | None, int]], found: list[tuple[str, int | None, int]]
) -> None:
    assert list(ended_copies(COPIES, ends)) == found
    assert list(ended_copies([], ends)) == []


def test_of_what_nobody_watched_nothing_is_lost() -> None:
    assert alone(copy(1)).state == "pending"
    late = Node(looked_at=BORN + 100 * HOUR)
    assert (alone(copy(1), node=late).state, alone(copy(1), node=late).letter) == ("ended", "0001")
    assert alone(copy(1), node=late).evidence.endswith("its outcome was deleted before it was seen")
    assert alone(copy(1, dead_at=None), node=late).state == "pending"


@each_row(("checked_to", "state"), [(None, "pending"), (0, "pending"), (1, "pending"), (2, "ended")])
def test_what_its_broker_checks_no_more_and_did_not_keep_is_not_called_pending(
    checked_to: int | None, state: str
) -> None:
    newest = copy(1, offset=1, checks=1)
    found = alone(newest, node=Node(checked_to=checked_to))
    assert found.state == state
    assert ("neither an end, nor that it was given up" in found.evidence) == (state == "ended")
    given_up = alone(newest, copy(2, "discarded"), node=Node(checked_to=checked_to))
    assert given_up.state == "check_max_exceeded"


def test_without_an_index_nothing_tells_a_rollback_from_a_commit() -> None:
    ended = copy(1, ended_at=BORN + MINUTE, end_seen_at=BORN + MINUTE)
    assert alone(ended).state == "rolled_back"
    of_blind = alone(ended, node=Node(indexed=False))
    assert of_blind.state == "ended"
    assert "its broker keeps no index to look its real message up by" in of_blind.evidence


def test_of_very_many_copies_the_oldest_are_counted_and_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_COPIES", 3)
    halves = [copy(n, position=n) for n in range(2, 9)]
    found = alone(copy(0, "discarded"), copy(1, "real", prepared=2), *halves)
    assert found.copies == 7
    assert found.record_ids == ["0000", "0001", "0006", "0007", "0008"]
    assert "; its 4 oldest records are counted, not named; " in found.evidence
    assert "not captured" not in found.evidence
