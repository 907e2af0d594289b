"""RocketMQ transactions: did the money move?

A transaction is known by its unique key on one broker node: its half message, the copies that every check
puts back, the op record that says one of them has ended (commit and rollback alike), the real message that a
commit wrote, and the broker's note that it gave up asking. Brokers are never mixed: offsets are a node's own;
only that a twin was committed on another node is told. Nor are sources: each has its own view of a broker.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from dlq.analyzers.groups import contract
from dlq.analyzers.groups.classified import Classified, Key, Sharing
from dlq.analyzers.groups.contract import Context, OwnRows, Reduced, Relation, Said
from dlq.analyzers.groups.values import highest, in_order, is_within, join_known, lowest, second
from dlq.analyzers.rules import LONGEST_EVIDENCE
from dlq.analyzers.rules.rocketmq import DEFAULT_RESERVED_HOURS

MOST_COPIES = 10_000
"""Of so many records a transaction keeps the names and positions; older ones are only counted."""
_HOUR, _MILLI = 3_600_000_000, 1_000
_OFFSET = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")
_PASSED = "its broker checks it no more, and has kept no word of it: neither an end, nor that it was given up"


class Member(NamedTuple):
    """A record of a transaction. Op records are none: what they say is in `ended_at` of the copy they end."""

    broker_node: str
    record_id: str
    role: str
    """half, discarded or real."""
    message_id: str | None = None
    captured_at: int | None = None
    dead_at: int | None = None
    published_at: int | None = None
    origin: str | None = None
    ended_at: int | None = None
    end_seen_at: int | None = None
    """When a pull brought the op record that ended this half copy."""
    offset: int | None = None
    position: int | None = None
    prepared: int | None = None
    """Of a real message: the position of the half message it was made of."""
    checks: int | None = None
    immunity: int | None = None
    """In seconds."""
    producer_group: str | None = None


class Node(NamedTuple):
    """One broker node as the newest pull of a source saw it."""

    looked_at: int | None = None
    """When that pull began: what it did not bring was not there then."""
    reserved_hours: int = DEFAULT_RESERVED_HOURS
    check_interval_ms: int | None = None
    settles_after_ms: int = 0
    """How long after a discard a late outcome may still come: a check interval and an op batch."""
    indexed: bool = True
    """Whether real messages were looked for to the end; else nothing tells a rollback from a commit."""
    checked_to: int | None = None
    """Before which half copy none was checked any more when that pull began."""


class Transaction(NamedTuple):
    """A row of the archive's table but for its source, and what its records' verdicts need."""

    unique_key: str
    state: str
    checks: int
    topic: str | None
    producer_group: str | None
    broker_node: str
    discarded: bool
    check_reached_producer: str
    first_seen: int | None
    last_seen: int | None
    copies: int
    record_ids: list[str]
    real_record_id: str | None
    evidence: str
    letter: str | None
    """The record that stands for it, where somebody has to look at it."""
    skipped: bool
    """It was given up for its age."""


class Conclusion(NamedTuple):
    """What a transaction makes of one of its records. A user's own cause stays; so do a mechanism and an
    evidence that are None here."""

    cause: str | None
    mechanism: str | None
    transaction_state: str | None
    evidence: str | None
    beside_the_letter: bool


def offsets(finished: str | None) -> Iterator[int]:
    """Return the offsets that an op record names: `7`, or `7,12,` since 5.1."""
    return (int(text) for text in (finished or "").split(",") if _OFFSET.fullmatch(text))


def ended_copies(
    copies: Iterable[tuple[str, int | None]], ends: Iterable[tuple[int | None, int]]
) -> Iterator[tuple[str, int | None, int]]:
    """Half copies (record_id, dead_at) and op records (dead_at, captured_at) of one offset of one node ->
    those copies that have ended: record_id, ended_at, and when a pull brought the last word of it.

    A broker that lost its store counts from 0 again, so an offset means the newest copy there that is older
    than the op record.
    """
    in_time = sorted((in_order(dead_at), record_id) for record_id, dead_at in copies)
    times = [time for time, _ in in_time]
    found: dict[str, tuple[int | None, int]] = {}
    for ended_at, seen_at in ends:
        older = len(times) if ended_at is None else bisect_right(times, in_order(ended_at))
        if older:
            record_id = in_time[older - 1][1]
            before, seen_before = found.get(record_id, (None, seen_at))
            found[record_id] = (lowest(before, ended_at), max(seen_before, seen_at))
    return ((record_id, *end) for record_id, end in found.items())


def resolve(unique_key: str, members: Iterable[Member], nodes: Mapping[str, Node]) -> list[Transaction]:
    """Return the records of one unique key of one source and broker -> a transaction for each node.

    `members` are sorted by node, dead_at, offset and record_id, what is not known first; they are taken in
    one by one, and only the newest of very many are kept. `nodes`: what the source's pulls know of them.
    """
    seen: dict[str, _Records] = {}
    for node, of_node in groupby(members, key=lambda one: one.broker_node):
        records = seen.setdefault(node, _Records())
        for one in of_node:
            records.take(one)
    # A producer that got no answer sends the half message to another node too, under the same key.
    twin = min((node for node, records in seen.items() if records.real_record_id is not None), default=None)
    cases = ((node, _Case(records, nodes.get(node, Node()), twin)) for node, records in seen.items())
    return [_transaction(unique_key, node, case) for node, case in cases]


def conclude(transaction: Transaction | None, record_id: str) -> Conclusion:
    """Return what its transaction makes of a record; None: it is an op record, which is of none.

    One record stands for a transaction that is open or was given up; the copies beside it, and the op
    records, are not letters: their cause is None.
    """
    if transaction is None:
        return Conclusion(None, None, None, None, beside_the_letter=True)
    stands = record_id == transaction.letter
    cause, mechanism = _meaning(transaction) if stands else (None, "none")
    return Conclusion(cause, mechanism, transaction.state, transaction.evidence, beside_the_letter=not stands)


def _meaning(transaction: Transaction) -> tuple[str, str]:
    if transaction.state == "pending":
        return "transaction_pending", "none"
    if not transaction.discarded:
        return "unknown", "none"
    return ("check_skipped", "check_age") if transaction.skipped else ("check_max_exceeded", "check")


def _newest() -> deque[int]:
    return deque(maxlen=MOST_COPIES)


@dataclass
class _Records:
    """What the records of one transaction on one node come to."""

    count: int = 0
    copies: int = 0
    checks: int = 0
    topic: str | None = None
    producer_group: str | None = None
    immunity: int | None = None
    has_key: bool = False
    answered: bool = False
    sent_at: int | None = None
    ended_at: int | None = None
    end_seen_at: int | None = None
    first_seen: int | None = None
    last_seen: int | None = None
    last_captured: int | None = None
    newest_half: Member | None = None
    fresh_half_at: int | None = None
    newest_discard: Member | None = None
    real_record_id: str | None = None
    names: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_COPIES))
    halves: deque[int] = field(default_factory=_newest)
    prepared: deque[int] = field(default_factory=_newest)

    def take(self, one: Member) -> None:
        """Add a record that is not older than those before it."""
        self.count += 1
        self.names.append(one.record_id)
        self.checks = max(self.checks, one.checks or 0)
        self.topic = highest(self.topic, one.origin)
        self.producer_group = highest(self.producer_group, one.producer_group)
        self.immunity = highest(self.immunity, one.immunity)
        self.has_key = self.has_key or bool(one.message_id)
        self.answered = self.answered or (one.ended_at is not None and (one.checks or 0) > 0)
        self._take_times(one)
        _TAKE_ROLE[one.role](self, one)

    def _take_times(self, one: Member) -> None:
        self.sent_at = lowest(self.sent_at, one.published_at)
        self.ended_at = lowest(self.ended_at, one.ended_at)
        self.end_seen_at = highest(self.end_seen_at, one.end_seen_at)
        self.first_seen = lowest(self.first_seen, one.dead_at)
        self.last_seen = highest(self.last_seen, highest(one.dead_at, one.ended_at))
        self.last_captured = highest(self.last_captured, one.captured_at)

    def take_half(self, one: Member) -> None:
        self.copies += 1
        self.newest_half = one
        if not one.checks:
            self.fresh_half_at = highest(self.fresh_half_at, one.dead_at)
        if one.position is not None:
            self.halves.append(one.position)

    def take_discard(self, one: Member) -> None:
        self.newest_discard = one

    def take_real(self, one: Member) -> None:
        self.real_record_id = lowest(self.real_record_id, one.record_id)
        if one.prepared is not None:
            self.prepared.append(one.prepared)

    @cached_property
    def record_ids(self) -> list[str]:
        """The names that are kept, and those of the records that decide, however old they are."""
        newest = (one.record_id for one in (self.newest_half, self.newest_discard) if one is not None)
        real = () if self.real_record_id is None else (self.real_record_id,)
        return sorted({*self.names, *newest, *real})


_TAKE_ROLE: Mapping[str, Callable[[_Records, Member], None]] = {
    "half": _Records.take_half,
    "discarded": _Records.take_discard,
    "real": _Records.take_real,
}


@dataclass(frozen=True)
class _Case:
    """A transaction's records, and what is known of their node."""

    records: _Records
    node: Node
    twin: str | None
    """The first node that has a real message of this key."""

    @property
    def looked_at(self) -> int | None:
        """Without a pull's word (an imported file) nothing says how long it was watched."""
        looked_at = self.node.looked_at
        return None if looked_at is None else highest(self.records.last_captured, looked_at)

    @property
    def reserved(self) -> int:
        return self.node.reserved_hours * _HOUR

    @property
    def newest_half_at(self) -> int | None:
        return self.records.newest_half.dead_at if self.records.newest_half else None

    @property
    def discarded(self) -> bool:
        return self.records.newest_discard is not None

    @property
    def discarded_at(self) -> int | None:
        return self.records.newest_discard.dead_at if self.records.newest_discard else None

    @cached_property
    def skipped(self) -> bool:
        at, sent_at = self.discarded_at, self.records.sent_at
        return at is not None and sent_at is not None and not is_within(at, sent_at, self.reserved)

    @property
    def resumed(self) -> bool:
        """After a resumed check a fresh copy lies in the half topic, and everything is open again."""
        fresh_at, discarded_at = self.records.fresh_half_at, self.discarded_at
        return fresh_at is not None and discarded_at is not None and fresh_at > discarded_at

    @property
    def retained(self) -> bool:
        """The real message is written after the half message: while that is retained, so is the other. Only
        by its unique key could a pull look for it; brokers up to 4.9 add none."""
        end_is_seen_in_time = is_within(self.records.end_seen_at, self.newest_half_at, self.reserved)
        return self.node.indexed and self.records.has_key and end_is_seen_in_time

    @property
    def can_change(self) -> bool:
        return is_within(self.looked_at, self.discarded_at, self.node.settles_after_ms * _MILLI)

    @property
    def is_lost(self) -> bool:
        looked_at, half_at = self.looked_at, self.newest_half_at
        return (
            looked_at is not None and half_at is not None and not is_within(looked_at, half_at, self.reserved)
        )

    @property
    def is_passed(self) -> bool:
        """Its broker is beyond its newest copy, and asks no more: what it gives up it may fail to keep."""
        newest, reached = self.records.newest_half, self.node.checked_to
        return newest is not None and newest.offset is not None and newest.offset < (reached or 0)

    @property
    def is_ended(self) -> bool:
        return self.records.ended_at is not None

    @property
    def is_committed(self) -> bool:
        return self.twin is not None

    @cached_property
    def state(self) -> str:
        return next(state for state, holds in _STATES if holds(self))

    @cached_property
    def letter(self) -> Member | None:
        """The record that stands for it."""
        if self.state == "pending" and (not self.discarded or self.resumed):
            return self.records.newest_half
        if self.discarded:
            return self.records.newest_discard
        return self.records.newest_half if self.state == "ended" else None

    @property
    def check_reached_producer(self) -> str:
        """Every copy that an immune message gets counts as a check, though nobody was asked."""
        checks, interval, immunity = self.records.checks, self.node.check_interval_ms, self.records.immunity
        if self.records.answered:
            return "yes"
        if checks == 0:
            return "no"
        is_immune = immunity is not None and interval is not None and immunity * 1000 > checks * interval
        return "no" if is_immune else "unknown"


_STATES: tuple[tuple[str, Callable[[_Case], bool]], ...] = (
    ("committed", lambda case: case.is_committed),
    ("rolled_back", lambda case: case.is_ended and case.retained),
    ("ended", lambda case: case.is_ended),
    ("pending", lambda case: case.discarded and (case.resumed or case.can_change)),
    ("check_skipped", lambda case: case.skipped),
    ("check_max_exceeded", lambda case: case.discarded),
    ("ended", lambda case: case.is_lost or case.is_passed),
    ("pending", lambda _: True),
)
"""How a transaction stands: the first line that holds."""


def _transaction(unique_key: str, node: str, case: _Case) -> Transaction:
    records = case.records
    return Transaction(
        unique_key=unique_key,
        state=case.state,
        checks=records.checks,
        topic=records.topic,
        producer_group=records.producer_group,
        broker_node=node,
        discarded=case.discarded,
        check_reached_producer=case.check_reached_producer,
        first_seen=records.first_seen,
        last_seen=records.last_seen,
        copies=records.copies,
        record_ids=records.record_ids,
        real_record_id=records.real_record_id,
        evidence=join_known((clause(case) for clause in _EVIDENCE), "; "),
        letter=case.letter.record_id if case.letter else None,
        skipped=case.skipped,
    )


def _counts(case: _Case) -> str:
    return f"{case.records.copies} half copies, {case.records.checks} checks counted"


def _not_named(case: _Case) -> str | None:
    unnamed = case.records.count - len(case.records.record_ids)
    return f"its {unnamed} oldest records are counted, not named" if unnamed else None


def _end(case: _Case) -> str | None:
    at = case.records.ended_at
    return None if at is None else f"ended at {second(at)}"


def _outcome(case: _Case) -> str | None:
    if case.records.real_record_id is not None:
        return f"the real message is there{_times_written(case)}{_made_of(case)}"
    if case.is_committed:
        return f"its twin on {case.twin} was committed: the real message is there"
    if case.state == "rolled_back":
        return "no real message, though it would still be retained"
    return None


def _times_written(case: _Case) -> str:
    times = len(set(case.records.prepared))
    return f", written {times} times" if times > 1 else ""


def _made_of(case: _Case) -> str:
    records = case.records
    all_known = records.count <= MOST_COPIES
    strange = records.copies and all_known and set(records.halves).isdisjoint(records.prepared)
    return ", of a copy that was not captured" if strange else ""


def _given_up(case: _Case) -> str | None:
    discard = case.records.newest_discard
    if discard is None or discard.dead_at is None:
        return None
    return f"discarded at {second(discard.dead_at)} after {discard.checks or 0} checks"


def _too_old(case: _Case) -> str | None:
    return f"by then older than the retention of {case.node.reserved_hours} h" if case.skipped else None


def _resumption(case: _Case) -> str | None:
    return "its check was resumed since" if case.resumed else None


def _open(case: _Case) -> str | None:
    is_open = case.state == "pending" and case.discarded and case.can_change
    return "a late outcome is still possible: pull again" if is_open else None


def _why_nothing_shows(case: _Case) -> str | None:
    if case.state != "ended":
        return None
    if not case.is_ended:
        return _PASSED if case.is_passed else "its outcome was deleted before it was seen"
    if not case.node.indexed:
        return "its broker keeps no index to look its real message up by, or its topic's queue did not tell"
    return None if case.records.has_key else "it has no unique key to look its real message up by"


_EVIDENCE: tuple[Callable[[_Case], str | None], ...] = (
    _counts, _not_named, _end, _outcome, _given_up, _too_old, _resumption, _open, _why_nothing_shows,
)  # fmt: skip
"""What a transaction's evidence says, in this order, where there is something to say."""


def key_of(source: str) -> Key:
    """Return what all records of a source's transactions share: what pulls learn of its nodes decides on
    them."""
    return "transactions", source


def keys(letter: Sharing) -> Iterator[Key]:
    """Yield a record's source."""
    if letter.role is not None:
        yield key_of(letter.source)


def _members_at_places(
    letters: Iterable[Classified], _context: Context, _said: Said
) -> Iterator[contract.Member]:
    """Yield half copies, and op records under each offset that they name."""
    for one in letters:
        if one.rocket is not None and one.role == "half":
            yield contract.Member(_place(one, one.rocket.offset), (), (one.record_id, one.dead_at, None))
        elif one.rocket is not None and one.role == "finished":
            for offset in offsets(one.rocket.ended_offsets):
                yield contract.Member(_place(one, offset), (), (None, one.dead_at, one.captured_at))


def _place(one: Classified, offset: int | None) -> Key:
    return "ended", one.source, one.broker, one.broker_node or "", str(offset)


def _ended_at_place(
    _key: Key, members: Iterator[tuple[str | None, int | None, int]], _context: Context
) -> Iterator[Reduced]:
    copies: list[tuple[str, int | None]] = []
    ends: list[tuple[int | None, int]] = []
    for record_id, dead_at, captured_at in members:
        if record_id is None:
            ends.append((dead_at, captured_at))
        else:
            copies.append((record_id, dead_at))
    found = {name: (at, seen_at) for name, at, seen_at in ended_copies(copies, ends)}
    yield Reduced(found or None)


def _key_of(one: Classified) -> Key:
    return "transaction", one.source, one.broker, one.unique_key or ""


def _members(letters: Iterable[Classified], _context: Context, said: Said) -> Iterator[contract.Member]:
    for one in letters:
        if one.role is not None and one.role != "finished":
            ended = said.get(_place(one, one.rocket.offset), {}) if one.rocket else {}
            member = _member(one, *ended.get(one.record_id, (None, None)))
            yield contract.Member(_key_of(one), _in_time(member), member)


def _reduce(key: Key, members: Iterator[Member], context: Context) -> Iterator[Reduced]:
    _, source, _, unique_key = key
    resolved = resolve(str(unique_key), members, context.nodes.get(str(source), {}))
    rows = [("transactions", {"source": source, **one._asdict()}) for one in resolved]
    yield Reduced({one.broker_node: one for one in resolved}, rows)


def _conclude(letter: Classified, said: Said, _context: Context) -> Classified:
    """Return what its transaction makes of a record. A cause that the user names stays with the one that
    stands for the transaction: the others are no letters, whatever rule means them."""
    if letter.role is None:
        return letter
    of_node = said.get(_key_of(letter), {}) if letter.role != "finished" else {}
    made = conclude(of_node.get(letter.broker_node or ""), letter.record_id)
    evidence = letter.evidence if made.evidence is None else made.evidence
    mine = None if made.beside_the_letter else letter.user_rule
    return letter._replace(
        cause=letter.cause if mine is not None and letter.rule == mine else made.cause,
        user_rule=mine,
        mechanism=letter.mechanism if made.mechanism is None else made.mechanism,
        evidence=None if evidence is None else evidence[:LONGEST_EVIDENCE],
        also_possible=(),
        transaction_state=made.transaction_state,
        beside_the_letter=made.beside_the_letter,
    )


def _in_time(one: Member) -> tuple[str, tuple[bool, int], tuple[bool, int], str]:
    return one.broker_node, in_order(one.dead_at), in_order(one.offset), one.record_id


def _member(one: Classified, ended_at: int | None, end_seen_at: int | None) -> Member:
    stored = one.rocket
    return Member(
        one.broker_node or "",
        one.record_id,
        one.role or "",
        one.message_id,
        one.captured_at,
        one.dead_at,
        one.published_at,
        one.origin,
        ended_at,
        end_seen_at,
        *((None,) * 6 if stored is None else tuple(getattr(stored, name) for name in Member._fields[10:])),
    )


ENDED = Relation(("ended",), _members_at_places, _ended_at_place, column="role")
"""The half copies that have ended, by the op records that name their offset on their node."""
TRANSACTIONS = Relation(
    ("transaction",),
    _members,
    _reduce,
    _conclude,
    column="role",
    rows=OwnRows("transactions", ("source",)),
    keys=keys,
)
"""The records of one unique key."""
