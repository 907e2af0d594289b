"""Make a plan: which letters go back, where to, what is stripped, what is left out and why.

Nothing is sent and no letter is changed; the plan is a new file of the archive.
"""

import math
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import manifests, views
from dlq.archive.storage.store import Store
from dlq.connectors.base import Target
from dlq.core.clock import iso, now
from dlq.core.errors import BrokerError, UsageError
from dlq.core.record import Record
from dlq.core.runtime.interpreter import rare_garbage_collection
from dlq.core.settings import AUTO, Settings
from dlq.replay import came_back, still_queued
from dlq.replay import ledger as ledgers
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import content, deadlines, planfile, superseded, twins
from dlq.replay.plans.destinations import is_allowed
from dlq.replay.plans.edits import LARGEST
from dlq.replay.plans.letters import Letter, Place, lap_of, replay_key, transaction_of
from dlq.replay.plans.origins import Origins
from dlq.replay.plans.owners import TIMES, Owners, oldest_of
from dlq.replay.plans.picking import MOST_WARNINGS, Candidate, Known, Picker, advised_against
from dlq.replay.plans.planfile import Draft, Header
from dlq.replay.plans.unwrapping import memory_in_body, unwrap
from dlq.replay.plans.wanted import DEFAULT_TARGET, Wanted
from dlq.replay.runs import elsewhere, ordering
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.load import PLANNED_COLUMNS, Loader
from dlq.replay.runs.ordering import InOrder

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
_MOST_AUDIENCES = 200
_RECORDS = 2_000
"""So many letters are looked at together."""


class _Planner:
    """Makes one plan."""

    def __init__(
        self, store: Store, settings: Settings, brokers: Brokers, say: superseded.Say, wanted: Wanted
    ) -> None:
        self._say, self._wanted = say, wanted
        self._store, self._settings, self._brokers = store, settings, brokers
        self._ledger: Ledger | None = None
        sources = settings.sources.values()
        ordered = {one.name for one in sources if one.in_order or wanted.in_order}
        # A key that several messages have is no message's name.
        self._by_key = {one.name for one in sources if one.key != "message_id"} - ordered
        self._ordered = ordered
        self._in_order: InOrder | None = wanted.in_order or ("consumed" if ordered else None)
        self._unkeyed = 0
        self._of_keys: Mapping[str, str | None] = {}
        self._unwrapped_size = 0
        self._moment = now()
        """When the plan was made: what a broker refuses from here on, it may not have seen in the ledger."""
        self._owners = Owners(settings, self._moment)
        self._picker = Picker(
            wanted, settings, brokers, Origins(store), self._owners, self._by_key, self._moment
        )
        self._sent: twins.Sent = {}
        self._replays: pa.Table
        """All that were sent, or may have been."""
        self._back: Collection[str] = ()
        """Keys of those that died again, though the ledger does not know that they were sent."""
        self._files: Mapping[str, str | None] = {}
        self._brokers_of: dict[str, str] = {}
        """Segment -> whose letters it holds; empty where an older dlq has not written that."""

    def make(self, ledger: Ledger | None) -> Header:
        """Choose the letters, write them, and return the header."""
        self._ledger = ledger
        with tempfile.TemporaryFile() as spool:
            draft = Draft(spool)
            letters = islice(self._letters(), self._wanted.limit)
            draft.add(self._in_turns(letters) if self._in_order else letters)
            self._wanted.edits.check_used(self._picker.tally.edited)
            return self._commit(draft)

    def _in_turns(self, letters: Iterable[Letter]) -> Sequence[Letter]:
        """Return the letters key by key. Raises UsageError where nothing would let the next of a key go."""
        found = ordering.arrange(self._store, self._settings, [*letters], by_all=bool(self._wanted.in_order))
        places = ordering.places_in_order(found.letters)
        if places and self._wanted.limit is not None:
            raise UsageError(_NO_LIMIT)
        if not (places or self._wanted.in_order):
            self._in_order = None  # the sources that are in order have no part in it
        elif self._in_order == "consumed":
            ordering.check_evidence(self._brokers, self._settings, places, self._picker.tally.warn)
        self._unkeyed = found.unkeyed
        self._picker.tally.warnings.update(found.warnings)
        return found.letters

    def _letters(self) -> Iterator[Letter]:
        replays = ledgers.as_arrow(self._settings.ledger, self._store)
        self._replays = elsewhere.list_sent(replays)
        unsent = elsewhere.list_unsent(replays)
        self._back = came_back.find_among(self._store, unsent, 0) if unsent else ()
        queued = still_queued.find_queued(self._store, self._settings)
        connection = views.connect(self._store, replays, queued=queued)
        committed = list(manifests.list_committed(self._store))
        self._brokers_of = {stem: m.broker for m in committed for stem in (*m.replaces, m.stem)}
        loader = Loader(self._store, PLANNED_COLUMNS, hashes=True)
        self._files = loader.files
        self._sent = twins.find_sent(connection)
        if len({m.source for m in committed}) > 1:
            self._picker.repeated = twins.find_repeated(connection)
        if self._in_order:
            by_all = self._wanted.in_order is not None
            self._of_keys = ordering.find_of_keys(connection, self._settings, by_all)
        try:
            self._picker.superseded = superseded.find(self._ask(connection), self._brokers)
            columns = (*_CHOSEN, "source", *TIMES) if self._settings.consumers else _CHOSEN
            for batch in views.segment_rows(connection, self._wanted.condition(), columns):
                for rows in _by_segment(batch):
                    yield from self._pick(rows, loader)
        finally:
            connection.close()

    def _pick(self, rows: pa.RecordBatch, loader: Loader) -> Iterator[Letter]:
        rows = self._without_dismissed(rows)
        ids, stems, numbers = (rows[name].to_pylist() for name in ("record_id", "stem", "row"))
        places = list(map(Place, ids, stems, numbers))
        origins = zip(*(rows[name].to_pylist() for name in _ORIGIN), strict=True)
        candidates = [
            found
            for record, place, advice, origin in zip(
                loader.records(places), places, self._advice(rows, self._owners), origins, strict=True
            )
            if (found := self._candidate(record, _as_classified(record, origin), place, advice))
        ]
        self._picker.destinations.learn([one.destination for one in candidates], self._wanted.to)
        known = self._look_up(rows, [one.letter.key for one in candidates])
        hints = deadlines.with_hints([one.record.body for one in candidates])
        for candidate, has_hint in zip(candidates, hints, strict=True):
            candidate.has_hint = has_hint
            if self._picker.take(candidate, known):
                yield candidate.letter

    def _look_up(self, rows: pa.RecordBatch, keys: Sequence[str]) -> Known:
        ids = rows["record_id"].to_pylist()
        is_known = rows["replay_state"].null_count < rows.num_rows
        states = self._ledger.states(keys) if self._ledger else {}
        return Known(
            states,
            elsewhere.find_sent(self._replays, ids) if is_known else {},
            twins.with_sent_twin(self._sent, rows) - self._of_keys.keys(),
            self._back,
            dict(zip(ids, _oldest(rows), strict=True)) if self._settings.consumers else {},
        )

    def _ask(self, connection: Any) -> superseded.Asked:
        """Return what to find out of letters before any is picked."""
        wanted, owners = self._wanted, Owners(self._settings, self._moment)

        def goes(rows: pa.RecordBatch) -> list[bool]:
            told = zip(rows["record_id"].to_pylist(), self._advice(rows, owners), strict=True)
            return [advised_against(record_id, advice, wanted) is None for record_id, advice in told]

        return superseded.Asked(
            self._store, self._settings, connection, wanted.check_superseded, wanted.condition(), goes,
            ("advice", "source", *TIMES), self._replays, self._say, self._ordered,
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
        """Leave these out, which nothing takes in but `dlq dismiss --undo`."""
        closed = pc.fill_null(pc.equal(rows["replay_state"], "dismissed"), False)
        if count := pc.sum(closed).as_py():
            self._picker.tally.left_out["dismissed"] += count
            return rows.filter(pc.invert(closed))
        return rows

    def _candidate(
        self, stored: Record, record: Record, place: Place, advice: str | None
    ) -> Candidate | None:
        wanted, left_out = self._wanted, self._picker.tally.left_out
        broker = self._brokers.name_for(record.source, self._brokers_of.get(place.segment) or record.broker)
        target = self._target(broker, record) if broker else None
        if target is not None and len(target.name) + len(target.routing_key) > _LONGEST_NAME:
            self._picker.tally.warn(_NO_NAME)
            target = None
        if broker is None or target is None:
            nowhere = "no_target" if broker else "no_broker"
            left_out[advised_against(record.record_id, advice, wanted) or nowhere] += 1
            return None
        if not is_allowed(target, self._settings.replay.targets):
            left_out[_not_allowed(wanted, self._settings.replay.targets)] += 1
            return None
        if wanted.place not in (None, (broker, target._replace(routing_key=""))):
            left_out["not_rehearsed"] += 1
            return None
        wrapped = self._unwrap(record) if wanted.unwrap else None
        lap, transaction = lap_of(record), transaction_of(record)
        key = replay_key(record, target, record.source in self._by_key, lap, transaction)
        # The picker leaves out a letter whose body has another digest.
        edited = record.record_id in self._picker.lines
        bound = content.digest(stored, target, edited, stored.body_sha256)
        letter = Letter(0, record.record_id, key, lap, broker, place.segment, place.row, target, bound)
        return Candidate(record, advice, letter, wrapped, transaction is not None)

    def _target(self, broker: str, record: Record) -> Target | None:
        """Return where a letter goes; None where nothing says it. Raises UsageError for a `--to` that its
        broker has not."""
        try:
            return self._brokers.get(broker).target_of(record, self._wanted.to_for(record))
        except UsageError:
            if self._wanted.to != DEFAULT_TARGET:
                raise
            return None  # it came by import from another kind of broker

    def _unwrap(self, record: Record) -> str | None:
        """Change a letter to the message in it, where it remembers its failure in its body and nobody has
        edited it; why that cannot be done. Raises UsageError for too many."""
        if record.record_id in self._picker.lines or memory_in_body(record) is None:
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
        self._picker.lines[record.record_id] = line
        return None

    def _commit(self, draft: Draft) -> Header:
        wanted, tally, made = self._wanted, self._picker.tally, iso(self._moment)
        targets: Counter[str] = Counter()
        target_brokers: dict[str, list[str]] = {}
        for (broker, target), letters in tally.going.items():
            targets[planfile.printed(target)] += letters
            target_brokers.setdefault(planfile.printed(target), []).append(broker)
        changed = tally.edited | tally.unwrapped
        left_on, unproven = self._proof()
        header = Header(
            plan="",
            created_at=made,
            where=wanted.where,
            to=wanted.to,
            letters=draft.letters,
            rate=wanted.rate,
            keep_headers=wanted.keep_headers,
            witness=wanted.witness or left_on,
            any_advice=wanted.any_advice,
            again=wanted.again,
            audience=self._consumers(),
            targets=dict(targets.most_common()),
            left_out=dict(tally.left_out.most_common()),
            stripped=dict(tally.count_stripped().most_common()),
            warnings=dict(tally.warnings.most_common()) | unproven,
            told_by_letters=dict(tally.told_by_letters.most_common()),
            brokers=dict(tally.by_broker()),
            target_brokers={target: tuple(dict.fromkeys(names)) for target, names in target_brokers.items()},
            segments=self._segments(draft),
            files={stem: file for stem in sorted(draft.segments) if (file := self._files[stem])},
            edits=self._picker.changes.digest(changed),
            unwrapped=len(tally.unwrapped),
            actor=wanted.actor,
            reason=wanted.reason,
            owners=self._owners.describe(),
            owners_until=None if tally.owners_until is None else iso(tally.owners_until),
            private=sorted(tally.private & targets.keys()),
            superseded=tally.superseded,
            not_looked_at=dict(self._picker.superseded.unlooked.most_common(MOST_WARNINGS)),
            in_order=self._in_order,
            unkeyed=self._unkeyed,
            check_superseded=wanted.check_superseded,
        )
        digest = draft.digest(header)
        header = replace(header, digest=digest, plan=f"{made[:19].translate(_COMPACT)}-{digest[:6]}")
        if changed:
            self._store.put(planfile.edits_name(header.plan), self._picker.changes.content(changed))
        draft.commit(self._store, header)
        return header

    def _proof(self) -> tuple[Sequence[str], dict[str, int]]:
        """Return the brokers on which a witness is left by their settings; and what would keep a crash from
        being cleared up where one is asked for, said before anything is sent -> for how many letters."""
        left_on: list[str] = []
        unproven: dict[str, int] = {}
        for broker, letters in self._picker.tally.by_broker().items():
            setting = self._wanted.witness or self._settings.brokers[broker].witness
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
        places = [*islice(self._picker.tally.going, _MOST_AUDIENCES)]
        for name in dict.fromkeys(broker for broker, _ in places):
            targets = [target for broker, target in places if broker == name]
            broker = self._brokers.get(name)
            try:
                found, now = broker.consumers(targets), broker.consumption(targets)
            except BrokerError as error:
                self._picker.tally.warn(f"who receives it is not proven: {error}")
                continue
            for target, receivers in found.items():
                idle = {one.receiver for one in now.get(target, ()) if one.consumers == 0}
                proven[str(target)] = tuple(one for one in receivers if one not in idle)
        return proven


def _not_allowed(wanted: Wanted, patterns: Sequence[str]) -> str:
    """Say why a target is not allowed. Raises UsageError where the user has named it."""
    if wanted.names_target:
        raise UsageError(
            f"--to {wanted.to}: [replay] targets allows only {', '.join(patterns)}; choose one of them"
        )
    return "not_allowed"


def _by_segment(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows, which are in the order of segments: of one alone the bodies are in memory, and of some
    of its letters the records."""
    start = 0
    for run in pc.run_end_encode(rows["stem"]).run_ends.to_pylist():
        for at in range(start, run, _RECORDS):
            yield rows.slice(at, min(_RECORDS, run - at))
        start = run


def _as_classified(record: Record, origin: tuple[str | None, ...]) -> Record:
    """Return a record with the origin that the analysis found; mostly the one that it was captured with."""
    if _origin_of(record) == origin:
        return record
    found: dict[str, Any] = dict(zip(_ORIGIN, origin, strict=True))
    return record._replace(**found)


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
        raise UsageError(f"--rate {wanted.rate:g}: write a number of messages a second that is above 0")
    planner = _Planner(store, settings, brokers, say, wanted)
    with ledgers.opened_if_any(settings.ledger, store) as ledger, rare_garbage_collection():
        return planner.make(ledger)
