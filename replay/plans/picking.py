"""Decide of each letter whether it goes into a plan, and count what is said of it.

Reasons to leave a letter out are asked in one order: what was done with it, what is advised, where it would
go, and what it is.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from dlq.connectors.base import SendPreview
from dlq.core.headers.provenance import REHEARSAL
from dlq.core.record import Record
from dlq.core.settings import Settings
from dlq.replay.plans import deadlines, planfile, superseded
from dlq.replay.plans.destinations import Destination, Destinations
from dlq.replay.plans.edits import Edits
from dlq.replay.plans.letters import Letter, make_outgoing
from dlq.replay.plans.origins import Origins
from dlq.replay.plans.owners import Owners
from dlq.replay.plans.unwrapping import memory_in_body, why_cut
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs import elsewhere
from dlq.replay.runs.brokers import Brokers
from dlq.replay.states import State

_ADVICE_LEFT_OUT = ("check_first", "fix_first", "never", "hold")
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
_ODD = "its id, its row or its trips are none that dlq gives a letter"
_DAMAGED = "its body is not what was captured; dlq verify shows the damage"
MOST_WARNINGS = 50
_MOST_SUPERSEDED = 1_000
"""A plan says why of so many; the others it counts."""


@dataclass
class Tally:
    """Counted while letters are picked."""

    going: Counter[Destination] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    stripped_together: Counter[tuple[str, ...]] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    told_by_letters: Counter[str] = field(default_factory=Counter)
    edited: set[str] = field(default_factory=set)
    unwrapped: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    superseded: dict[str, str] = field(default_factory=dict)
    owners_until: int | None = None

    def by_broker(self) -> Counter[str]:
        """Return how many go to each broker."""
        found: Counter[str] = Counter()
        for (broker, _), letters in self.going.items():
            found[broker] += letters
        return found

    def count_stripped(self) -> Counter[str]:
        """Return each name that is not sent again -> of how many letters."""
        found: Counter[str] = Counter()
        for names, letters in self.stripped_together.items():
            for name in names:
                found[name] += letters
        return found

    def warn(self, text: str) -> None:
        """Count a sentence; beyond a few dozen different ones they are only counted."""
        known = text in self.warnings or len(self.warnings) < MOST_WARNINGS
        self.warnings[text if known else "other warnings"] += 1


class Candidate:
    """A letter on its way into the plan: its record, its replay, and what the verdict advises."""

    __slots__ = ("advice", "destination", "has_hint", "is_half", "letter", "record", "wrapped")

    def __init__(
        self, record: Record, advice: str | None, letter: Letter, wrapped: str | None, is_half: bool
    ) -> None:
        """`wrapped`: why it is not unwrapped, though that is wanted; `is_half`: it belongs to a
        transaction."""
        self.record, self.advice, self.letter, self.wrapped = record, advice, letter, wrapped
        self.is_half = is_half
        self.destination: Destination = letter.broker, letter.target
        self.has_hint: bool | None = None
        """Of a deadline in its body; None: nobody has looked."""


class Known(NamedTuple):
    """What is known of the letters of one segment beside what they say themselves."""

    states: Mapping[str, State]
    """Key -> what the ledger knows."""
    elsewhere: elsewhere.Elsewhere
    twins: Collection[str]
    """Ids of letters that have a twin which was sent."""
    back: Collection[str]
    """Keys of those that died again, though they were refused, or nobody knows that they were sent."""
    oldest: Mapping[str, int | None]
    """Id -> the oldest known time, where the word of an owner may hold that long."""


class Picker:
    """Picks the letters of one plan."""

    def __init__(
        self,
        wanted: Wanted,
        settings: Settings,
        brokers: Brokers,
        origins: Origins,
        owners: Owners,
        by_key: Collection[str],
        moment: int,
    ) -> None:
        """`by_key`: sources whose letters have a business key that is theirs alone."""
        self._wanted, self._sources, self._brokers, self._by_key = wanted, settings.sources, brokers, by_key
        self._origins, self._owners, self._moment = origins, owners, moment
        self.tally = Tally()
        self.destinations = Destinations(brokers, self.tally.warn)
        self.superseded = superseded.Found()
        self.lines: dict[str, bytes] = {**wanted.edits.lines}
        """Of edits, and of what is unwrapped."""
        self.changes = Edits(self.lines)
        self.repeated: Collection[str] = ()
        """Ids of letters that lie under several sources."""
        self._shared_keys: set[str] = set()
        """Of letters that go, those keys that other letters may have."""
        self._open: set[Destination] = set()
        """Those that nothing is said against."""
        self._unremarked: set[Destination] = set()
        """Those of which there is nothing to say, whatever letter goes there."""
        self._needs_coverage = any(one.coverage == "required" for one in settings.sources.values())

    def take(self, candidate: Candidate, known: Known) -> bool:
        """Count a letter as one that goes, or as one that is left out; return whether it goes."""
        reason = self._why_left_out(candidate, known)
        if reason is not None:
            self.tally.left_out[reason] += 1
            return False
        self._count(candidate, known)
        return True

    def _why_left_out(self, candidate: Candidate, known: Known) -> str | None:
        record, letter = candidate.record, candidate.letter
        state = elsewhere.find_here(known.elsewhere, letter) or known.states.get(letter.key)
        if REHEARSAL in record.headers or REHEARSAL in record.properties:
            return "rehearsal"
        if state is not None and (reason := self._why_done(candidate, state, known)):
            return reason
        return (
            advised_against(record.record_id, candidate.advice, self._wanted)
            or self._why_superseded(record)
            or self._sent_elsewhere(candidate, known)
            or self._twin_sent(record, known)
            or self._why_closed(candidate.destination)
            or self._twin(candidate)
            or self._risk(candidate)
            or self._why_lost(candidate)
        )

    def _why_done(self, candidate: Candidate, state: State, known: Known) -> str | None:
        """Return what the ledger has against it; what no broker kept may go again."""
        if state == "planned" and candidate.letter.key in known.back:
            return "replayed"  # whatever was decided
        if state not in _MAY_GO_AGAIN:
            return _LEFT_OUT_BY_STATE.get(state)
        dies_again = state == "refused" and self._dies_again(candidate, known)
        if dies_again or not self._wanted.takes(candidate.record.record_id):
            return _LEFT_OUT_BY_STATE[state]
        self.tally.warn(_KNOWN)
        return None

    def _dies_again(self, candidate: Candidate, known: Known) -> bool:
        """Return whether what its target refused is, or may be, a dead letter of its own now: sent again it
        would be two."""
        return (
            self.destinations.refused_die_again(candidate.destination) or candidate.letter.key in known.back
        )

    def _why_superseded(self, record: Record) -> str | None:
        """Take superseded as advice to check first; where its source says never, only an id takes it in.
        Nothing takes in what would keep out a newer one of this plan, as the ledger has one key of both."""
        why = self.superseded.why.get(record.record_id)
        if why is None:
            return None
        if len(self.tally.superseded) < _MOST_SUPERSEDED:
            self.tally.superseded[record.record_id] = why
        source = self._sources.get(record.source)
        is_never = source is not None and source.superseded == "never"
        displaces = record.source in self._by_key and record.record_id in self.superseded.behind
        insists = self._wanted.names(record.record_id) or (self._wanted.any_advice and not is_never)
        if insists and not displaces:
            self.tally.warn("it goes back though it is superseded: it may overwrite something newer")
            return None
        return "superseded"

    def _sent_elsewhere(self, candidate: Candidate, known: Known) -> str | None:
        words = elsewhere.describe_sent(known.elsewhere, candidate.letter)
        if words is None:
            return None
        if self._wanted.again:
            self.tally.warn(f"it goes once more: {words}")
            return None
        self.tally.warn(f"left out: {words}; --again sends it to this target, too")
        return "sent_elsewhere"

    def _twin_sent(self, record: Record, known: Known) -> str | None:
        has_twin = record.record_id in known.twins
        return "twin_sent" if has_twin and not self._wanted.takes(record.record_id) else None

    def _why_closed(self, destination: Destination) -> str | None:
        if destination in self._open:
            return None
        why = self.destinations.why_temporary(destination)
        if why is not None and not self._wanted.names_target:
            self.tally.warn(f"left out: {why}; name a target with --to")
            return "temporary"
        why = self.destinations.why_missing(destination)
        if why is not None:
            broker, _ = destination
            self.tally.warn(f"left out: {why} on {broker}; make it, or choose another target with --to")
            return "not_there"
        self._open.add(destination)
        return None

    def _twin(self, candidate: Candidate) -> str | None:
        """Leave out the second of two letters of one business message or transaction, or of one letter under
        two sources."""
        return "same_key" if candidate.letter.key in self._shared_keys else None

    def _risk(self, candidate: Candidate) -> str | None:
        why = self._why_risky(candidate)
        if why is None:
            return None
        self.tally.warn(f"left out as risky: {why}")
        return "risky"

    def _why_risky(self, candidate: Candidate) -> str | None:
        letter, tally = candidate.letter, self.tally
        if not planfile.can_hold(letter):
            return _ODD
        if sha256(candidate.record.body).hexdigest() != candidate.record.body_sha256:
            return _DAMAGED
        record = self.changes.apply(candidate.record)
        outgoing = make_outgoing(letter, record, self._wanted.keep_headers)
        preview = self._brokers.get(letter.broker).preview(outgoing)
        for warning in preview.warnings:
            tally.warn(warning)
        if preview.problem is not None:
            return preview.problem
        memory = memory_in_body(record)
        if candidate.wrapped is not None:
            return f"{memory}; --unwrap leaves it: {candidate.wrapped} (--edit)"
        late = {**self._deadlines(candidate, record, preview), **why_cut(record)}
        if preview.unless_named or late or memory:
            unless_named: dict[Any, str] = {**preview.unless_named, **late}
            if memory:
                unless_named["letter"] = f"{memory} (--unwrap or --edit changes it)"
            if unnamed := self._wanted.why_unnamed(unless_named, record.record_id):
                return unnamed
        tally.stripped_together[tuple(preview.stripped)] += 1
        if preview.private:
            tally.private.add(planfile.printed(letter.target))
        return None

    def _deadlines(self, candidate: Candidate, record: Record, preview: SendPreview) -> Mapping[Any, str]:
        """Return why a letter goes back only if it is named: its own deadline has passed. What else its
        deadlines mean is a warning. `record`: as it is sent."""
        has_hint = candidate.has_hint if record is candidate.record else None
        for deadline in deadlines.deadlines(record, preview.stripped, has_hint):
            said = deadlines.in_words(deadline, self._moment)
            is_late = deadline.is_known and deadlines.is_late(deadline, self._moment)
            if said and is_late and not self._wanted.names(record.record_id):
                return {"letter": f"{said} (--edit changes it)"}
            if said:
                self.tally.warn(said)
        return {}

    def _why_lost(self, candidate: Candidate) -> str | None:
        """Say that its target would lose it, at once or when it dies again."""
        destination = candidate.destination
        if destination in self._unremarked:
            return None
        why = self._why_uncovered(candidate) or self._no_room(candidate)
        if not (why or self._needs_coverage) and self.destinations.says_nothing_of(destination):
            self._unremarked.add(destination)
        return why

    def _why_uncovered(self, candidate: Candidate) -> str | None:
        """Say that a letter that dies again would be lost; its source may want it left out then."""
        verdict, why = self.destinations.why_uncovered(candidate.destination)
        source = self._sources.get(candidate.record.source)
        is_required = source is not None and source.coverage == "required"
        if verdict == "kept" or not (why or is_required):
            return None
        why = why or f"{candidate.letter.target}: whether what dies there again is lost is not known"
        if not is_required or self._wanted.names_target:
            self.tally.warn(why)
            return None
        self.tally.warn(f"left out as risky: {why}; dlq coverage says how to fix it, or name it with --to")
        return "risky"

    def _no_room(self, candidate: Candidate) -> str | None:
        why = self.destinations.why_no_room(candidate.destination, candidate.record.body_size)
        if why is None or self._wanted.names_target:
            return None
        self.tally.warn(f"left out as risky: {why}; name the target with --to to send it")
        return "risky"

    def _count(self, candidate: Candidate, known: Known) -> None:
        record, tally = candidate.record, self.tally
        tally.going[candidate.destination] += 1
        if candidate.is_half or record.source in self._by_key or record.record_id in self.repeated:
            self._shared_keys.add(candidate.letter.key)
        if not (self._wanted.names_target or self._origins.are_borne_out(record, candidate.letter.target)):
            tally.told_by_letters[planfile.printed(candidate.letter.target)] += 1
        if ends := self._owners.ends(record.source, known.oldest.get(record.record_id)):
            tally.owners_until = min(ends, tally.owners_until or ends)
        if candidate.advice == "fix_first" and not self._wanted.fixed:
            tally.warn(FIX_FIRST)
        if record.record_id in self.lines:
            is_edited = record.record_id in self._wanted.edits.lines
            (tally.edited if is_edited else tally.unwrapped).add(record.record_id)
            for name in self._wanted.edits.list_ignored(record) if is_edited else ():
                tally.warn(f"the edited line has another {name}: only body, headers and properties change")


def advised_against(record_id: str, advice: str | None, wanted: Wanted) -> str | None:
    """Return the reason for which a letter with this advice is left out, unless the user insists."""
    if wanted.takes(record_id) or (wanted.fixed and advice == "fix_first"):
        return None
    return "no_verdict" if advice is None else advice if advice in _ADVICE_LEFT_OUT else None
