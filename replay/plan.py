"""Make a plan: which letters go back, where to, what is stripped, what is left out and why.

Nothing is sent and no letter is changed; the plan is a new file of the archive.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import manifests, views
from dlq.archive.store import Store
from dlq.connectors.base import SendPreview, Target
from dlq.core.brokers import kind_of
from dlq.core.clock import iso, now
from dlq.core.errors import BrokerError, UsageError
from dlq.core.failure_headers import Keep
from dlq.core.interpreter import rare_garbage_collection
from dlq.core.provenance import REHEARSAL
from dlq.core.record import Record
from dlq.core.settings import AUTO, Settings
from dlq.core.text import sql_literal
from dlq.replay import (
    came_back,
    content,
    deadlines,
    elsewhere,
    ordering,
    planfile,
    still_queued,
    superseded,
    twins,
)
from dlq.replay import ledger as ledgers
from dlq.replay.brokers import Brokers
from dlq.replay.destinations import Destinations, is_allowed
from dlq.replay.edits import LARGEST, NO_EDITS, Edits
from dlq.replay.enveloped import memory_in_body
from dlq.replay.ledger.contract import Ledger
from dlq.replay.letters import Letter, Place, lap_of, make_outgoing, replay_key, transaction_of
from dlq.replay.load import PLANNED_COLUMNS, Loader
from dlq.replay.ordering import InOrder
from dlq.replay.origins import Origins
from dlq.replay.owners import TIMES, Owners, oldest_of
from dlq.replay.planfile import Draft, Header
from dlq.replay.states import State
from dlq.replay.unwrapping import unwrap

DEFAULT_TARGET = "failed"
"""`--to` unless told: back to what failed, the `default_target` of the letter's kind of broker."""
_NAMES_IDS = re.compile(
    r"[\s(]*\"?record_id\"?\s*(=\s*'[^']*'|in\s*\(\s*'[^']*'(\s*,\s*'[^']*')*\s*\))[\s)]*", re.IGNORECASE
)


def names_ids(where: str | None) -> bool:
    """Return whether a condition names letters by their ids, and does nothing else."""
    return _NAMES_IDS.fullmatch(where or "") is not None


def condition_of_ids(record_ids: Iterable[str]) -> str:
    """Return the condition that names these letters."""
    return f"record_id in ({', '.join(map(sql_literal, sorted(record_ids)))})"


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `rate` is messages a second."""

    where: str | None = None
    to: str = DEFAULT_TARGET
    rate: float | None = None
    limit: int | None = None
    any_advice: bool = False
    fixed: bool = False
    """Take in letters whose advice is fix_first: their cause is fixed."""
    keep_headers: Keep = False
    witness: bool = False
    edits: Edits = NO_EDITS
    again: bool = False
    """What was sent to another target, or may have been, goes to this one, too."""
    unwrap: bool = False
    """What remembers its failure in its body goes as the message in it; that names no letter."""
    check_superseded: bool | None = None
    """Whether newer messages of the letters' keys are looked for; see `superseded.Asked`."""
    in_order: InOrder | None = None
    """Letters of one key go one after the other; None: those of sources that are `in_order`."""
    actor: str | None = None
    reason: str | None = None

    def condition(self) -> str | None:
        """Return which letters are looked at: those of `where`, and those that are edited."""
        if not self.edits.changed:
            return self.where
        edited = condition_of_ids(self.edits.changed)
        return edited if self.where is None else f"({self.where}\n) or {edited}"

    def takes(self, record_id: str) -> bool:
        """Return the user insists, or names this letter: advice does not leave it out."""
        return self.any_advice or self.names(record_id)

    def names(self, record_id: str) -> bool:
        """The user means this letter, by its id or by editing it."""
        return record_id in self.edits.changed or names_ids(self.where)

    def why_unnamed(self, unless_named: Mapping[Any, str], record_id: str) -> str | None:
        """Return why a letter is not sent, and what the user would have to name for it; None where that is
        named."""
        named = {"letter": self.names(record_id), "target": ":" in self.to}
        how = {"letter": "name it by its id", "target": "name the target with --to"}
        return next(
            (f"{why}; {how[what]} to send it" for what, why in unless_named.items() if not named[what]), None
        )

    def to_for(self, record: Record) -> str:
        """Return `to` as this letter's broker reads it."""
        return kind_of(record.broker_kind).default_target if self.to == DEFAULT_TARGET else self.to


_ADVICE_LEFT_OUT = ("check_first", "fix_first", "never", "hold")
_NO_VERDICT = "no_verdict"
_NOT_THERE = "not_there"
_NOT_ALLOWED = "not_allowed"
_TWIN_SENT = "twin_sent"
_SENT_ELSEWHERE = "sent_elsewhere"
_TEMPORARY = "temporary"
_MAY_GO_AGAIN: Collection[State | None] = ("returned", "refused")
"""States of letters that the broker did not keep."""
_LEFT_OUT_BY_STATE: Mapping[State, str] = {
    "confirmed": "replayed",
    "sending": "sending",
    "in_doubt": "in_doubt",
    "held": "held",
    "returned": "returned",
    "refused": "refused",
}
"""What the ledger knows of a letter -> why it is left out. `planned` is known, and was never sent."""
FIX_FIRST = "advice is fix_first: fix the cause before you apply this plan"
"""Said of letters that were taken in without the word that it is fixed."""
_KNOWN = "known to the ledger: apply sends only what the broker did not take before"
_ODD = "left out as risky: its id, its row or its trips are none that dlq gives a letter"
_DAMAGED = "left out as risky: its body is not what was captured; dlq verify shows the damage"
_ORIGIN = ("origin_kind", "origin", "origin_exchange", "origin_routing_key")
_origin_of = attrgetter(*_ORIGIN)
_CHOSEN = ("advice", *_ORIGIN, *twins.COLUMNS, "replay_state")
"""What the views say of a letter; the rest is read segment by segment, so that memory stays bounded."""
_LONGEST_NAME = 2**16
"""Characters: no broker has a target with such a name, which would keep it from being asked about others."""
_NO_NAME = f"left out: the name of its target is longer than any can be ({_LONGEST_NAME:,} characters)"
_NO_LIMIT = (
    "--limit may leave out the first of a key and take the next one: choose letters otherwise, or see them "
    "go in growing steps by dlq replay apply PLAN --ramp"
)
_MOST_WARNINGS = 50
_MOST_AUDIENCES = 200
_MOST_SUPERSEDED = 1_000
"""A plan says why of so many; the others it counts."""


@dataclass
class _Tally:
    """Counted while letters are picked."""

    targets: Counter[str] = field(default_factory=Counter)
    brokers: Counter[str] = field(default_factory=Counter)
    target_brokers: dict[str, dict[str, None]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    stripped: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    told_by_letters: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[str, Target], None] = field(default_factory=dict)
    edited: set[str] = field(default_factory=set)
    unwrapped: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    superseded: dict[str, str] = field(default_factory=dict)
    owners_until: int | None = None

    def warn(self, text: str) -> None:
        """Count a sentence; beyond a few dozen different ones they are only counted."""
        known = text in self.warnings or len(self.warnings) < _MOST_WARNINGS
        self.warnings[text if known else "other warnings"] += 1


class _Candidate:
    """A letter on its way into the plan: its record, its replay, and what the verdict advises."""

    __slots__ = ("advice", "has_hint", "letter", "record", "wrapped")

    def __init__(self, record: Record, advice: str | None, letter: Letter, wrapped: str | None) -> None:
        """`wrapped`: why it is not unwrapped, though that is wanted."""
        self.record, self.advice, self.letter, self.wrapped = record, advice, letter, wrapped
        self.has_hint: bool | None = None
        """Of a deadline in its body; None: nobody has looked."""


class _Planner:
    """Makes one plan."""

    def __init__(
        self, store: Store, settings: Settings, brokers: Brokers, ledger: Ledger | None, say: superseded.Say
    ) -> None:
        self._say = say
        self._store, self._settings, self._brokers, self._ledger = store, settings, brokers, ledger
        self._by_key = {name for name, source in settings.sources.items() if source.key != "message_id"}
        self._in_order: InOrder | None = None
        self._unkeyed = 0
        self._of_keys: Mapping[str, str | None] = {}
        self._business_keys: set[str] = set()
        self._tally = _Tally()
        self._lines: dict[str, bytes] = {}
        """Of edits, and of what is unwrapped."""
        self._changes = Edits(self._lines)
        self._unwrapped_size = 0
        self._destinations = Destinations(brokers, self._tally.warn)
        self._moment = now()
        self._origins = Origins(store)
        self._owners = Owners(settings, self._moment)
        self._back: set[str] = set()
        self._sent: twins.Sent = {}
        self._replays: pa.Table
        """All that were sent, or may have been."""
        self._elsewhere: elsewhere.Elsewhere = {}
        self._twins: Collection[str] = ()
        self._oldest: Mapping[str, int | None] = {}
        """Of the letters that are being picked: the oldest known time, where a word may hold that long."""
        self._superseded = superseded.Found()
        self._files: Mapping[str, str | None] = {}
        self._brokers_of: dict[str, str] = {}
        """Segment -> whose letters it holds; empty where an older dlq has not written that."""

    def make(self, wanted: Wanted) -> Header:
        """Choose the letters, write them, and return the header."""
        self._lines |= wanted.edits.lines
        sources = self._settings.sources.values()
        ordered = {one.name for one in sources if one.in_order or wanted.in_order}
        self._in_order = wanted.in_order or ("consumed" if ordered else None)
        self._by_key -= ordered  # a key that several messages have is no message's name
        with tempfile.TemporaryFile() as spool:
            draft = Draft(spool)
            letters = islice(self._letters(wanted), wanted.limit)
            draft.add(self._in_turns(letters, wanted) if self._in_order else letters)
            wanted.edits.check_used(self._tally.edited)
            return self._commit(draft, wanted)

    def _in_turns(self, letters: Iterable[Letter], wanted: Wanted) -> Sequence[Letter]:
        """Return the letters key by key. Raises UsageError where nothing would let the next of a key go."""
        found = ordering.arrange(self._store, self._settings, [*letters], by_all=bool(wanted.in_order))
        places = ordering.places_in_order(found.letters)
        if places and wanted.limit is not None:
            raise UsageError(_NO_LIMIT)
        if not (places or wanted.in_order):
            self._in_order = None  # the sources that are in order have no part in it
        elif self._in_order == "consumed":
            ordering.check_evidence(self._brokers, self._settings, places, self._tally.warn)
        self._unkeyed = found.unkeyed
        self._tally.warnings.update(found.warnings)
        return found.letters

    def _letters(self, wanted: Wanted) -> Iterator[Letter]:
        replays = ledgers.as_arrow(self._settings.ledger, self._store)
        self._replays = elsewhere.list_sent(replays)
        queued = still_queued.find_queued(self._store, self._settings)
        connection = views.connect(self._store, replays, queued=queued)
        committed = manifests.list_committed(self._store)
        self._brokers_of = {stem: m.broker for m in committed for stem in (*m.replaces, m.stem)}
        loader = Loader(self._store, PLANNED_COLUMNS, hashes=True)
        self._files = loader.files
        self._sent = twins.find_sent(connection)
        if self._in_order:
            by_all = wanted.in_order is not None
            self._of_keys = ordering.find_of_keys(connection, self._settings, by_all)
        try:
            self._superseded = superseded.find(self._ask(wanted, connection), self._brokers)
            columns = (*_CHOSEN, "source", *TIMES) if self._settings.consumers else _CHOSEN
            for batch in views.segment_rows(connection, wanted.condition(), columns):
                for rows in _by_segment(batch):
                    yield from self._pick(rows, loader, wanted)
        finally:
            connection.close()

    def _pick(self, rows: pa.RecordBatch, loader: Loader, wanted: Wanted) -> Iterator[Letter]:
        rows = self._without_dismissed(rows)
        ids, stems, numbers = (rows[name].to_pylist() for name in ("record_id", "stem", "row"))
        places = list(map(Place, ids, stems, numbers))
        origins = zip(*(rows[name].to_pylist() for name in _ORIGIN), strict=True)
        self._oldest = dict(zip(ids, _oldest(rows), strict=True)) if self._settings.consumers else {}
        candidates = [
            found
            for record, place, advice, origin in zip(
                loader.records(places), places, self._advice(rows, self._owners), origins, strict=True
            )
            if (found := self._candidate(record, _as_judged(record, origin), place, advice, wanted))
        ]
        self._twins = twins.with_sent_twin(self._sent, rows) - self._of_keys.keys()
        is_known = rows["replay_state"].null_count < rows.num_rows
        self._elsewhere = elsewhere.find_sent(self._replays, ids) if is_known else {}
        self._destinations.learn([(c.letter.broker, c.letter.target) for c in candidates], wanted.to)
        states = self._ledger.states([c.letter.key for c in candidates]) if self._ledger else {}
        refused = [c.letter.key for c in candidates if states.get(c.letter.key) == "refused"]
        self._back = came_back.find_among(self._store, refused, 0) if refused else set()
        hints = deadlines.with_hints([c.record.body for c in candidates])
        for candidate, has_hint in zip(candidates, hints, strict=True):
            candidate.has_hint = has_hint
            reason = self._left_out(candidate, states.get(candidate.letter.key), wanted)
            if reason is not None:
                self._tally.left_out[reason] += 1
            else:
                self._count(candidate, wanted)
                yield candidate.letter

    def _ask(self, wanted: Wanted, connection: Any) -> superseded.Asked:
        """Return what to find out of letters before any is picked."""
        owners = Owners(self._settings, self._moment)

        def goes(rows: pa.RecordBatch) -> list[bool]:
            told = zip(rows["record_id"].to_pylist(), self._advice(rows, owners), strict=True)
            return [_advised_against(record_id, advice, wanted) is None for record_id, advice in told]

        return superseded.Asked(
            self._store, self._settings, connection, wanted.check_superseded, wanted.condition(), goes,
            ("advice", "source", *TIMES), self._replays, self._say, bool(self._in_order),
        )  # fmt: skip

    def _advice(self, rows: pa.RecordBatch, owners: Owners) -> Iterator[str | None]:
        """Yield the verdict's advice of each, as the owners of consumers leave it."""
        advice = rows["advice"].to_pylist()
        if self._of_keys:
            ids = rows["record_id"].to_pylist()
            advice = [self._of_keys.get(one) or given for one, given in zip(ids, advice, strict=True)]
        if not self._settings.consumers:
            yield from advice
            return
        for advised, source, oldest in zip(advice, rows["source"].to_pylist(), _oldest(rows), strict=True):
            owners.count(source, oldest)
            yield owners.advise(source, advised, oldest)

    def _without_dismissed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Nothing takes these in but `dlq dismiss --undo`."""
        closed = pc.fill_null(pc.equal(rows["replay_state"], "dismissed"), False)
        if count := pc.sum(closed).as_py():
            self._tally.left_out["dismissed"] += count
            return rows.filter(pc.invert(closed))
        return rows

    def _candidate(
        self, stored: Record, record: Record, place: Place, advice: str | None, wanted: Wanted
    ) -> _Candidate | None:
        broker = self._brokers.name_for(record.source, self._brokers_of.get(place.segment) or record.broker)
        target = self._brokers.get(broker).target_of(record, wanted.to_for(record)) if broker else None
        if target is not None and len(str(target)) > _LONGEST_NAME:
            self._tally.warn(_NO_NAME)
            target = None
        if broker is None or target is None:
            nowhere = "no_target" if broker else "no_broker"
            self._tally.left_out[_advised_against(record.record_id, advice, wanted) or nowhere] += 1
            return None
        if not is_allowed(target, self._settings.replay.targets):
            self._tally.left_out[_not_allowed(wanted, self._settings.replay.targets)] += 1
            return None
        wrapped = self._unwrap(record) if wanted.unwrap else None
        lap = lap_of(record)
        key = replay_key(record, target, record.source in self._by_key)
        # `_risk` leaves out a letter whose body has another digest.
        edited = record.record_id in self._changes.changed
        bound = content.digest(stored, target, edited, stored.body_sha256)
        letter = Letter(0, record.record_id, key, lap, broker, place.segment, place.row, target, bound)
        return _Candidate(record, advice, letter, wrapped)

    def _unwrap(self, record: Record) -> str | None:
        """Change a letter to the message in it, where it remembers its failure in its body and nobody has
        edited it; why that cannot be done. Raises UsageError for too many."""
        if record.record_id in self._lines or memory_in_body(record) is None:
            return None
        try:
            line = unwrap(record)
        except UsageError as error:
            return str(error)
        self._unwrapped_size += len(line)
        if self._unwrapped_size > LARGEST:
            raise UsageError(
                f"--unwrap changes more than {LARGEST >> 30} GiB: take fewer letters, with --limit"
            )
        self._lines[record.record_id] = line
        return None

    def _left_out(self, candidate: _Candidate, state: State | None, wanted: Wanted) -> str | None:
        if REHEARSAL in candidate.record.headers or REHEARSAL in candidate.record.properties:
            return "rehearsal"
        insists = wanted.takes(candidate.record.record_id) and not self._died_again(candidate, state)
        if state is not None and state in _LEFT_OUT_BY_STATE and not (insists and state in _MAY_GO_AGAIN):
            return _LEFT_OUT_BY_STATE[state]
        if state in _MAY_GO_AGAIN:
            self._tally.warn(_KNOWN)
        against = _advised_against(candidate.record.record_id, candidate.advice, wanted)
        return (
            against
            or self._replaced(candidate, wanted)
            or self._sent_elsewhere(candidate, wanted)
            or self._twin_sent(candidate, wanted)
            or self._temporary(candidate, wanted)
            or self._not_there(candidate)
            or self._twin(candidate)
            or self._risk(candidate, wanted)
            or self._uncovered(candidate, wanted)
            or self._no_room(candidate, wanted)
        )

    def _replaced(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        """Superseded is advice to check first; where its source says never, only its id takes a letter in."""
        record = candidate.record
        why = self._superseded.why.get(record.record_id)
        if why is None:
            return None
        if len(self._tally.superseded) < _MOST_SUPERSEDED:
            self._tally.superseded[record.record_id] = why
        source = self._settings.sources.get(record.source)
        is_never = source is not None and source.superseded == "never"
        if wanted.names(record.record_id) or (wanted.any_advice and not is_never):
            self._tally.warn("it goes back though it is superseded: it may overwrite something newer")
            return None
        return "superseded"

    def _sent_elsewhere(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        if candidate.record.record_id not in self._elsewhere:
            return None
        words = elsewhere.describe_sent(self._elsewhere, candidate.record.record_id, candidate.letter.key)
        if words is None:
            return None
        if wanted.again:
            self._tally.warn(f"it goes once more: {words}")
            return None
        self._tally.warn(f"left out: {words}; --again sends it to this target, too")
        return _SENT_ELSEWHERE

    def _twin_sent(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        record_id = candidate.record.record_id
        return _TWIN_SENT if record_id in self._twins and not wanted.takes(record_id) else None

    def _died_again(self, candidate: _Candidate, state: State | None) -> bool:
        """Return what its target refused is, or may be, a dead letter of its own now: sent again it would be
        two."""
        letter = candidate.letter
        if state != "refused":
            return False
        destination = letter.broker, letter.target
        return self._destinations.refused_die_again(destination) or letter.key in self._back

    def _temporary(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        why = self._destinations.why_temporary((candidate.letter.broker, candidate.letter.target))
        if why is None or ":" in wanted.to:
            return None
        self._tally.warn(f"left out: {why}; name a target with --to")
        return _TEMPORARY

    def _no_room(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        destination = candidate.letter.broker, candidate.letter.target
        why = self._destinations.why_no_room(destination, candidate.record.body_size)
        if why is None or ":" in wanted.to:
            return None
        self._tally.warn(f"left out as risky: {why}; name the target with --to to send it")
        return "risky"

    def _uncovered(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        """Return whether a letter that dies again would be lost: a warning, unless its source wants to be
        sure."""
        destination = candidate.letter.broker, candidate.letter.target
        verdict, why = self._destinations.why_uncovered(destination)
        source = self._settings.sources.get(candidate.record.source)
        is_required = source is not None and source.coverage == "required"
        if verdict == "kept" or not (why or is_required):
            return None
        why = why or f"{destination[1]}: whether what dies there again is lost is not known"
        if not is_required or ":" in wanted.to:
            self._tally.warn(why)
            return None
        self._tally.warn(f"left out as risky: {why}; dlq coverage says how to fix it, or name it with --to")
        return "risky"

    def _not_there(self, candidate: _Candidate) -> str | None:
        broker, target = candidate.letter.broker, candidate.letter.target
        why = self._destinations.why_missing((broker, target))
        if why is None:
            return None
        self._tally.warn(f"left out: {why} on {broker}; make it, or choose another target with --to")
        return _NOT_THERE

    def _twin(self, candidate: _Candidate) -> str | None:
        """Return two letters of one business message or transaction: the first goes back, the other does
        not."""
        record = candidate.record
        if record.source not in self._by_key and transaction_of(record) is None:
            return None
        if candidate.letter.key in self._business_keys:
            return "same_key"
        self._business_keys.add(candidate.letter.key)
        return None

    def _risk(self, candidate: _Candidate, wanted: Wanted) -> str | None:
        letter = candidate.letter
        if not planfile.can_hold(letter):
            self._tally.warn(_ODD)
            return "risky"
        if sha256(candidate.record.body).hexdigest() != candidate.record.body_sha256:
            self._tally.warn(_DAMAGED)
            return "risky"
        record = self._changes.apply(candidate.record)
        outgoing = make_outgoing(letter, record, wanted.keep_headers)
        preview = self._brokers.get(letter.broker).preview(outgoing)
        for warning in preview.warnings:
            self._tally.warn(warning)
        if preview.problem is not None:
            self._tally.warn(f"left out as risky: {preview.problem}")
            return "risky"
        memory = memory_in_body(record)
        if candidate.wrapped is not None:
            self._tally.warn(f"left out as risky: {memory}; --unwrap leaves it: {candidate.wrapped} (--edit)")
            return "risky"
        unless_named: dict[Any, str] = {**preview.unless_named}
        unless_named |= self._deadlines(candidate, record, preview, wanted)
        if memory:
            unless_named["letter"] = f"{memory} (--unwrap or --edit changes it)"
        unnamed = wanted.why_unnamed(unless_named, record.record_id) if unless_named else None
        if unnamed is not None:
            self._tally.warn(f"left out as risky: {unnamed}")
            return "risky"
        for name in preview.stripped:
            self._tally.stripped[name] += 1
        if preview.private:
            self._tally.private.add(planfile.printed(letter.target))
        return None

    def _deadlines(
        self, candidate: _Candidate, record: Record, preview: SendPreview, wanted: Wanted
    ) -> Mapping[Any, str]:
        """Return why a letter goes back only if it is named: its own deadline has passed. What else its
        deadlines mean is a warning. `record`: as it is sent."""
        has_hint = candidate.has_hint if record is candidate.record else None
        for deadline in deadlines.deadlines(record, preview.stripped, has_hint):
            said = deadlines.in_words(deadline, self._moment)
            is_late = deadline.is_known and deadlines.is_late(deadline, self._moment)
            if said and is_late and not wanted.names(record.record_id):
                return {"letter": f"{said} (--edit changes it)"}
            if said:
                self._tally.warn(said)
        return {}

    def _count(self, candidate: _Candidate, wanted: Wanted) -> None:
        letter, target = candidate.letter, planfile.printed(candidate.letter.target)
        self._tally.targets[target] += 1
        self._tally.brokers[letter.broker] += 1
        self._tally.target_brokers.setdefault(target, {})[letter.broker] = None
        if ":" not in wanted.to and not self._origins.are_borne_out(candidate.record, letter.target):
            self._tally.told_by_letters[target] += 1
        if len(self._tally.places) < _MOST_AUDIENCES:
            self._tally.places[letter.broker, letter.target] = None
        if ends := self._owners.ends(candidate.record.source, self._oldest.get(letter.record_id)):
            self._tally.owners_until = min(ends, self._tally.owners_until or ends)
        if candidate.advice == "fix_first" and not wanted.fixed:
            self._tally.warn(FIX_FIRST)
        if letter.record_id in wanted.edits.changed:
            self._tally.edited.add(letter.record_id)
        elif letter.record_id in self._changes.changed:
            self._tally.unwrapped.add(letter.record_id)

    def _commit(self, draft: Draft, wanted: Wanted) -> Header:
        tally, moment = self._tally, now()
        changed = tally.edited | tally.unwrapped
        left_on, unproven = self._proof(wanted)
        header = Header(
            plan="",
            created_at=iso(moment),
            where=wanted.where,
            to=wanted.to,
            letters=draft.letters,
            rate=wanted.rate,
            keep_headers=wanted.keep_headers,
            witness=wanted.witness or left_on,
            any_advice=wanted.any_advice,
            again=wanted.again,
            audience=self._consumers(),
            targets=dict(tally.targets.most_common()),
            left_out=dict(tally.left_out.most_common()),
            stripped=dict(tally.stripped.most_common()),
            warnings=dict(tally.warnings.most_common()) | unproven,
            told_by_letters=dict(tally.told_by_letters.most_common()),
            brokers=dict(tally.brokers),
            target_brokers={target: tuple(names) for target, names in tally.target_brokers.items()},
            segments=self._segments(draft),
            files={stem: file for stem in sorted(draft.segments) if (file := self._files[stem])},
            edits=self._changes.digest(changed),
            unwrapped=len(tally.unwrapped),
            actor=wanted.actor,
            reason=wanted.reason,
            owners=self._owners.describe(),
            owners_until=None if tally.owners_until is None else iso(tally.owners_until),
            private=sorted(tally.private & tally.targets.keys()),
            superseded=tally.superseded,
            not_looked_at=dict(self._superseded.unlooked.most_common(_MOST_WARNINGS)),
            in_order=self._in_order,
            unkeyed=self._unkeyed,
        )
        digest = draft.digest(header)
        header = replace(header, digest=digest, plan=f"{iso(moment)[:19].translate(_COMPACT)}-{digest[:6]}")
        if changed:
            self._store.put(planfile.edits_name(header.plan), self._changes.content(changed))
        draft.commit(self._store, header)
        return header

    def _proof(self, wanted: Wanted) -> tuple[Sequence[str], dict[str, int]]:
        """Return the brokers on which a witness is left by their settings; and what would keep a crash from
        being cleared up where one is asked for, said before anything is sent -> for how many letters."""
        left_on: list[str] = []
        unproven: dict[str, int] = {}
        for broker, letters in self._tally.brokers.items():
            setting = wanted.witness or self._settings.brokers[broker].witness
            against = self._against_a_witness(broker) if setting else None
            is_left = setting is True or (setting == AUTO and against == [])
            if is_left:
                left_on.append(broker)
            place = broker if is_left else f"{broker}: no witness is left"
            unproven |= {f"{place}: {reason}": letters for reason in against or ()}
        return left_on, unproven

    def _against_a_witness(self, broker: str) -> Sequence[str] | None:
        """Return what would keep one from proving anything; None where none is needed, or nobody can be
        asked."""
        connector = self._brokers.get(broker)
        with suppress(BrokerError):  # who sends will hear of it
            return connector.check_witness()
        return None

    def _segments(self, draft: Draft) -> Mapping[str, str]:
        """Return the segments of a draft; of one that was written again meanwhile, the digest of what has its
        letters now."""
        committed = manifests.list_committed(self._store)
        held = {stem: m.digest for m in committed for stem in (*m.replaces, m.stem)}
        return {stem: held[stem] for stem in sorted(draft.segments & held.keys())}

    def _consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Return who receives it, as far as each broker can prove; an unreachable broker proves nothing."""
        proven: dict[str, tuple[str, ...]] = {}
        for name in self._tally.brokers:
            targets = [target for broker, target in self._tally.places if broker == name]
            broker = self._brokers.get(name)
            try:
                found, now = broker.consumers(targets), broker.consumption(targets)
            except BrokerError as error:
                self._tally.warn(f"who receives it is not proven: {error}")
                continue
            for target, receivers in found.items():
                idle = {one.receiver for one in now.get(target, ()) if one.consumers == 0}
                proven[str(target)] = tuple(one for one in receivers if one not in idle)
        return proven


def _not_allowed(wanted: Wanted, patterns: Sequence[str]) -> str:
    """Say why a target is not allowed. Raises UsageError where the user has named it."""
    if ":" in wanted.to:
        raise UsageError(
            f"--to {wanted.to}: [replay] targets lets letters go to {', '.join(patterns)} alone"
            "; choose one of them"
        )
    return _NOT_ALLOWED


def _by_segment(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows, which are in the order of segments: of one alone the bodies are in memory."""
    start = 0
    for run in pc.run_end_encode(rows["stem"]).run_ends.to_pylist():
        yield rows.slice(start, run - start)
        start = run


def _as_judged(record: Record, origin: tuple[str | None, ...]) -> Record:
    """Return a record with the origin that the analysis found; mostly the one that it was captured with."""
    if _origin_of(record) == origin:
        return record
    found: dict[str, Any] = dict(zip(_ORIGIN, origin, strict=True))
    return record._replace(**found)


def _advised_against(record_id: str, advice: str | None, wanted: Wanted) -> str | None:
    if wanted.takes(record_id) or (wanted.fixed and advice == "fix_first"):
        return None
    return _NO_VERDICT if advice is None else advice if advice in _ADVICE_LEFT_OUT else None


_COMPACT = str.maketrans("", "", "-:")


def _oldest(rows: pa.RecordBatch) -> Iterator[int | None]:
    """Return the oldest known time of each letter, in microseconds since the epoch."""
    times = (rows[name].cast(pa.int64()).to_pylist() for name in TIMES)
    return map(oldest_of, zip(*times, strict=True))


def make(
    store: Store, settings: Settings, wanted: Wanted, brokers: Brokers, say: superseded.Say = lambda _: None
) -> Header:
    """Write a plan and return its header; `say` is told how much will be looked at. Raises UsageError,
    ArchiveError, BrokerError."""
    if wanted.rate is not None and not 0 < wanted.rate < math.inf:
        raise UsageError(
            f"--rate {wanted.rate:g}: a rate is a positive number of messages a second; write one"
        )
    with ledgers.opened_if_any(settings.ledger, store) as ledger, rare_garbage_collection():
        return _Planner(store, settings, brokers, ledger, say).make(wanted)
