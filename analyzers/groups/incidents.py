"""Incidents: letters that died in a burst, for the same kind of reason, wherever they lay.

1. Letters are counted by failure (its fingerprint) in slots of five minutes. What is usual for a failure is
   its average over its history; slots that stand far out count only up to where that begins.
2. Slots above the usual, less than half an hour apart, are a run. A run, or one slot of it, that stands
   far out (half a dozen letters, six standard deviations, four times the usual) is a burst.
3. What rose a little in many failures of one kind at once, and stands far out together, is a burst too.
4. Bursts of one kind, less than half an hour apart, are one incident, across sources and brokers.

A letter whose time of death is unknown counts where it was published. Suppressed duplicates of a known
connection are left to `bursts`.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import fsum, sqrt
from typing import Any, NamedTuple, TypeVar

from dlq.analyzers.groups.classified import Key
from dlq.analyzers.groups.contract import Alike, Census, Context, Member, Reduced, Said

_K = TypeVar("_K", int, str)
_SECOND = 1_000_000

SLOT = 300
"""Seconds."""
_GAP = 1_800 // SLOT
"""Slots without a burst that end an incident."""
UNREMARKABLE = 4
"""So many letters at once never stand out by themselves."""
FRESH = 600
"""Seconds before the last pull in which an incident that goes on has a letter."""
_DAY = 86_400 // SLOT
_QUIET, _WEEK = 2 * _DAY, 7 * _DAY
"""An archive is assumed quiet before its first letter, for two days at most; a failure, for a week."""
_RECENT = 28 * _DAY
"""Slots without a letter after which a failure is new again."""

DEPENDENCY = ("timeout", "connection", "database", "throttled")
"""Families of exceptions that come together when something that many services need is down."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Slot(NamedTuple):
    """How many letters of a failure died in one slot, which is counted from the epoch; and who they are.
    Times are microseconds since the epoch."""

    fingerprint: str
    slot: int
    letters: int
    first_at: int = 0
    first_record_id: str = ""
    last_at: int = 0
    sources: Sequence[str] = ()
    causes: Sequence[str] = ()


class Found(NamedTuple):
    """A slot that is part of an incident, and the failure's slot before it."""

    slot: Slot
    incident_id: str
    before: int | None


class Incident(NamedTuple):
    """A row of the archive's table."""

    incident_id: str
    start: int
    peak: int
    """When its fullest slot began, or itself."""
    end: int
    size: int
    sources: list[str]
    causes: list[str]
    fingerprint: str
    """Of its most frequent failure."""
    first_record_id: str
    ongoing: bool
    """Its last letter died in the last minutes before the last pull."""
    new: bool
    """Its most frequent failure had no letter in the four weeks before it."""


class _Failure(NamedTuple):
    """The slots of one failure, in time."""

    slots: Sequence[Slot]
    usual: float
    """Letters a slot."""
    spread: float
    """A variance: letters often come in clumps."""


def kind_of(exception_family: str | None, cause: str) -> str:
    """Return the kind of reason for which a letter died."""
    if exception_family in DEPENDENCY:
        return "dependency"
    return cause if exception_family is None else exception_family


def kind_in(incident_id: str) -> str:
    """Return the kind of reason that an incident's name tells."""
    return incident_id[len(_stamp(0)) + 1 :]


def in_parts(slots: Iterable[Slot], most: int = 500_000) -> Iterator[list[Slot]]:
    """Yield the slots of one kind, sorted by failure and time, in parts of so many that memory holds at once.

    A failure is never split. Each part is looked through by itself: failures of two parts that rose a little
    together are not seen, and bursts of two parts are incidents of their own unless they began in one slot.
    """
    part: list[Slot] = []
    for _, of_failure in groupby(slots, key=lambda one: one.fingerprint):
        failure = list(of_failure)
        if part and len(part) + len(failure) > most:
            yield part
            part = []
        part += failure
    if part:
        yield part


def find(kind: str, slots: Sequence[Slot], span: int) -> list[Found]:
    """Return the slots of one kind that are part of an incident, by failure and time.

    `span` is what the archive covers, in slots.
    """
    failures = [
        _failure(list(of_one), span) for _, of_one in groupby(sorted(slots), key=lambda one: one.fingerprint)
    ]
    bursts = _with_what_rose_together(failures, [_bursts(failure) for failure in failures])
    incident_at = _incidents(kind, set().union(*bursts))
    pairs = zip(failures, bursts, strict=True)
    return [found for failure, burst in pairs for found in _fill_gaps(failure, sorted(burst), incident_at)]


def incidents(found: Iterable[Found], looked_at: int) -> Iterator[Incident]:
    """Return the incidents that slots are part of. `looked_at`: the time of the last pull."""
    of_incident: dict[str, list[Found]] = {}
    for one in found:
        of_incident.setdefault(one.incident_id, []).append(one)
    return (_incident(name, parts, looked_at) for name, parts in of_incident.items())


def _incident(name: str, parts: Sequence[Found], looked_at: int) -> Incident:
    slots = [part.slot for part in parts]
    start, first = min((slot.first_at, slot.first_record_id) for slot in slots)
    end = max(slot.last_at for slot in slots)
    failure = _fullest(slots, lambda slot: slot.fingerprint)
    begun = min((part for part in parts if part.slot.fingerprint == failure), key=lambda part: part.slot.slot)
    fullest = -_fullest(slots, lambda slot: -slot.slot)
    return Incident(
        name,
        start,
        max(start, fullest * SLOT * _SECOND),
        end,
        sum(slot.letters for slot in slots),
        sorted({source for slot in slots for source in slot.sources}),
        sorted({cause for slot in slots for cause in slot.causes}),
        failure,
        first,
        is_ongoing(end, looked_at),
        begun.before is None or begun.slot.slot - begun.before > _RECENT,
    )


def _fullest(slots: Iterable[Slot], key: Callable[[Slot], _K]) -> _K:
    """Return the key that most letters have; of several the highest."""
    letters: Counter[_K] = Counter()
    for slot in slots:
        letters[key(slot)] += slot.letters
    return max((count, value) for value, count in letters.items())[1]


def _threshold(usual: float, spread: float) -> float:
    """Return above how many letters a slot stands far out."""
    return max(UNREMARKABLE + usual + 6 * sqrt(spread), 4 * usual)


def history_of(span: int) -> int:
    """Return over how many slots a failure is averaged at least. `span`: what the archive covers."""
    return max(_QUIET, min(span, _WEEK))


def is_ongoing(end: int, looked_at: int) -> bool:
    """Return whether an incident whose last letter died then goes on."""
    return end >= looked_at - FRESH * _SECOND


def _failure(slots: Sequence[Slot], span: int) -> _Failure:
    history = max(history_of(span), slots[-1].slot - slots[0].slot + 1)
    average = sum(one.letters for one in slots) / history
    far_out = _threshold(average, average)
    capped = [min(one.letters, far_out) for one in slots]
    return _Failure(slots, fsum(capped) / history, fsum(count * count for count in capped) / history)


def _unusual_slots(failure: _Failure) -> list[Slot]:
    """Return the slots above what is usual."""
    above = failure.usual + 3 * sqrt(failure.usual)
    return [one for one in failure.slots if one.letters > above]


def _bursts(failure: _Failure) -> set[int]:
    """Return the slots of a failure that stand out by themselves."""
    letters = {one.slot: one.letters for one in _unusual_slots(failure)}
    runs = (run for run in _runs(letters) if _stands_out(failure, run, [letters[slot] for slot in run]))
    return {slot for run in runs for slot in run}


def _stands_out(failure: _Failure, run: Sequence[int], letters: Sequence[int]) -> bool:
    lasts = run[-1] - run[0] + 1
    alone = max(letters) > _threshold(failure.usual, failure.spread)
    return alone or sum(letters) > _threshold(failure.usual * lasts, failure.spread * lasts)


def _runs(slots: Iterable[int]) -> Iterator[list[int]]:
    """Yield slots in time, parted where more than GAP lies between two."""
    run: list[int] = []
    for slot in slots:
        if run and slot - run[-1] > _GAP:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run


def _with_what_rose_together(failures: Sequence[_Failure], bursts: Sequence[set[int]]) -> list[set[int]]:
    """Add the slots where what is left of many failures stands out together."""
    left = [
        [one for one in _unusual_slots(failure) if one.slot not in burst]
        for failure, burst in zip(failures, bursts, strict=True)
    ]
    together: Counter[int] = Counter()
    for rest in left:
        together.update({one.slot: one.letters for one in rest})
    bound = _threshold(fsum(one.usual for one in failures), fsum(one.spread for one in failures))
    return [
        burst | {one.slot for one in rest if together[one.slot] > bound}
        for burst, rest in zip(bursts, left, strict=True)
    ]


def _incidents(kind: str, bursts: Iterable[int]) -> dict[int, str]:
    """Return slot -> incident, of every slot that has a burst: an incident is named for when it began."""
    runs = _runs(sorted(bursts))
    return {slot: f"{_stamp(run[0])}-{kind}" for run in runs for slot in run}


def _stamp(slot: int) -> str:
    began = _EPOCH + timedelta(seconds=slot * SLOT)
    return f"{began.year:04d}{began:%m%d-%H%M}"  # %Y may write the year 7 as 7


def _fill_gaps(failure: _Failure, bursts: Sequence[int], incident_at: Mapping[int, str]) -> Iterator[Found]:
    """Yield a failure's bursts, and what lies between two of its bursts in one incident: it belongs to it."""
    times = [one.slot for one in failure.slots]
    for incident_id, of_one in groupby(bursts, key=lambda slot: incident_at[slot]):
        run = list(of_one)
        first, last = bisect_left(times, run[0]), bisect_left(times, run[-1])
        for number in range(first, last + 1):
            yield Found(failure.slots[number], incident_id, times[number - 1] if number else None)


Place = tuple[str, str, int]
"""The kind of reason, the failure and the slot in which a letter counts."""
Counted = tuple[str | None, Slot]
"""Letters of one place. Records of transactions, whose place may change, are counted apart, by their source;
what is counted apart adds up (`merge`)."""


def merge(slots: Sequence[Slot]) -> Slot:
    """Return several counts of one slot of one failure as one."""
    if len(slots) == 1:
        return slots[0]
    return Slot(
        *slots[0][:2],
        sum(one.letters for one in slots),
        *min((one.first_at, one.first_record_id) for one in slots),
        max(one.last_at for one in slots),
        sorted({source for one in slots for source in one.sources}),
        sorted({cause for one in slots for cause in one.causes}),
    )


def member_of(kind: str, of: str | None, slot: Slot) -> Member:
    """Return letters that count, under their kind of reason. `of`: the source of transactions."""
    return Member(("reason", kind), (slot.fingerprint, slot.slot, of is not None, of or ""), (of, slot))


def _kind_of_alike(alike: Alike) -> str | None:
    """Suppressed duplicates of a known connection count in none: they are left to `bursts`."""
    _, cause, family, _, is_connected, _ = alike.values
    if cause is None or (cause == "suppressed_duplicate" and is_connected):
        return None
    return kind_of(family, cause)


def _members(counted: Iterable[Alike]) -> Iterator[Member]:
    for alike in counted:
        kind = _kind_of_alike(alike)
        if kind is not None:
            source, cause, _, fingerprint, _, is_of_transaction = alike.values
            slot = Slot(fingerprint, *alike[1:], [source], [cause])
            yield member_of(kind, source if is_of_transaction else None, slot)


def _reduce(key: Key, counted: Iterator[Counted], context: Context) -> Iterator[Reduced]:
    """Yield the slots, and the incidents that they are part of, which are told to each failure."""
    kind = str(key[1])
    apart: dict[tuple[str, int], list[Counted]] = {}
    for part in in_parts(_merge_sources(counted, apart)):
        incident_of: dict[str, dict[int, str]] = defaultdict(dict)
        found = find(kind, part, context.span)
        for one in found:
            incident_of[one.slot.fingerprint][one.slot.slot] = one.incident_id
        slots = [one for slot in part for one in apart.pop(slot[:2])]
        yield Reduced(None, _rows(kind, slots, incident_of, incidents(found, context.looked_at)))
        for fingerprint, at in incident_of.items():
            yield Reduced(at, key=_key_of_failure(kind, fingerprint))


def _merge_sources(counted: Iterator[Counted], apart: dict[tuple[str, int], list[Counted]]) -> Iterator[Slot]:
    """Yield the slots of one place as one; what was counted apart there is put into `apart`."""
    for place, of_place in groupby(counted, key=lambda one: one[1][:2]):
        sources = groupby(of_place, key=lambda one: one[0])
        apart[place] = [(of, merge([slot for _, slot in same])) for of, same in sources]
        yield merge([slot for _, slot in apart[place]])


def _rows(
    kind: str,
    slots: Iterable[Counted],
    incident_of: Mapping[str, Mapping[int, str]],
    found: Iterable[Incident],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from (("incidents", one._asdict()) for one in found)
    for of, slot in slots:
        incident_id = incident_of.get(slot.fingerprint, {}).get(slot.slot)
        beside = {"kind": kind, "transactions_of": of, "incident_id": incident_id}
        yield "slots", {**slot._asdict(), **beside}


def _key_of_failure(kind: str, fingerprint: str) -> Key:
    return "failure", kind, fingerprint


def _conclude(alike: Alike, said: Said) -> str | None:
    kind = _kind_of_alike(alike)
    at = {} if kind is None else said.get(_key_of_failure(kind, alike.values[3]), {})
    found: str | None = at.get(alike.slot)
    return found


INCIDENTS = Census(
    ("reason",),
    ("source", "cause", "exception_family", "fingerprint"),
    ("connection_id", "role"),
    SLOT,
    _members,
    _reduce,
    "incident_id",
    _conclude,
)
