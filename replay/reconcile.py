"""Resolve what is in doubt: by proof where there is some, else by an operator's decision.

Proof is the mark of a process that was killed (`marks`), a letter that came back to a dead-letter queue with
our replay id (proven sent), or what the connector finds on the broker. Who said what, and when, stays in the
ledger.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlq.archive.storage.store import Store
from dlq.connectors.base import Outgoing, Presence, Search
from dlq.core.errors import ArchiveError, BrokerError, DlqError, UsageError
from dlq.replay import came_back, status
from dlq.replay.actor import actor
from dlq.replay.ledger.contract import Entry, Ledger
from dlq.replay.plans import edits, planfile
from dlq.replay.plans.letters import make_outgoing
from dlq.replay.plans.planfile import Checked
from dlq.replay.runs import marks
from dlq.replay.runs.apply import forget
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.load import Loader
from dlq.replay.states import State

_SHORTEST_PREFIX = 8
_WITNESSES, _LAST = 20, 1000
"""Letters of a broker that it had confirmed: it is asked of these, too. They are of the plan's last ones."""
_DENIES = "it shows nothing of {}, which it had confirmed, so what it does not show proves nothing"
_LACKS = (
    "it shows nothing of {} of the last {} letters that were confirmed there, such as {}: ask their "
    "consumers whether these came"
)
_SILENT = "nothing there shows what became of the rest"
_SHOWN: Sequence[tuple[Presence, State]] = (("sent", "confirmed"), ("not_sent", "planned"))
"""What a broker shows -> what it means for the ledger."""


@dataclass(frozen=True)
class Decision:
    """What an operator decided: record ids (unique prefixes of 8 or more) by what became of them, and perhaps
    one state for all the rest."""

    sent: tuple[str, ...] = ()
    not_sent: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    rest: State | None = None
    who: str | None = None
    """On whose behalf; None: of this process' user."""

    def by_state(self) -> Sequence[tuple[State, tuple[str, ...]]]:
        """Return what each list means for the ledger."""
        return (("confirmed", self.sent), ("planned", self.not_sent), ("held", self.hold))


@dataclass
class Resolved:
    """How many replays were resolved by this run, and how many are still in doubt or set aside."""

    sent: int = 0
    not_sent: int = 0
    unknown: int = 0
    held: int = 0
    notes: list[str] = field(default_factory=list)

    def count(self, state: State, moved: int) -> None:
        """Add what was resolved to `state`."""
        if state == "confirmed":
            self.sent += moved
        elif state == "planned":
            self.not_sent += moved


def reconcile(store: Store, plan: str, brokers: Brokers, ledger: Ledger, decision: Decision) -> Resolved:
    """Resolve what can be resolved. Raises UsageError, and Busy while the plan is being applied.

    A broker that can't be asked is a note of the result, and so are letters that it can't be asked for: the
    operator's decision counts without it.
    """
    checked = planfile.check(store, plan)
    header = checked.header
    with store.lock(f"plan-{plan}"):
        by_marks = marks.expire(store, ledger, plan)
        resolved = Resolved(sent=by_marks["confirmed"], not_sent=by_marks["planned"])
        named = _keys_by_state(_list_open(ledger, plan), decision)
        resolved.count("confirmed", came_back.confirm(store, ledger, plan))
        if doubtful := ledger.entries(plan, "in_doubt"):
            _by_proof(checked, brokers, ledger, doubtful, resolved)
        who = decision.who or actor()
        unproven = {entry.key for entry in _list_open(ledger, plan)}
        for state, named_keys in named.items():
            keys = [key for key in named_keys if key in unproven]
            resolved.count(state, ledger.resolve(keys, state, f"decided by {who}"))
        if decision.rest is not None:
            keys = [entry.key for entry in ledger.entries(plan, "in_doubt")]
            resolved.count(decision.rest, ledger.resolve(keys, decision.rest, f"decided by {who} for all"))
        states = status.counts(store, ledger, header)
        resolved.unknown, resolved.held = states["in_doubt"], states["held"]
        if status.is_over(states):
            resolved.notes += forget(header, brokers)
        return resolved


def _list_open(ledger: Ledger, plan: str) -> Sequence[Entry]:
    """List what an operator may decide."""
    return [*ledger.entries(plan, "in_doubt"), *ledger.entries(plan, "held")]


def _keys_by_state(entries: Sequence[Entry], decision: Decision) -> Mapping[State, list[str]]:
    """Return state -> keys of the letters that the operator names; raises UsageError for other ids."""
    return {
        state: [_find_entry(entries, prefix).key for prefix in prefixes]
        for state, prefixes in decision.by_state()
        if prefixes
    }


def _find_entry(entries: Sequence[Entry], prefix: str) -> Entry:
    near = [e for e in entries if e.record_id.startswith(prefix)] if len(prefix) >= _SHORTEST_PREFIX else []
    if len(near) != 1:
        what = "names several letters" if near else "is no letter of this plan in doubt or held"
        raise UsageError(f"{prefix!r} {what}; give 8 or more digits of its record id")
    return near[0]


def _by_proof(
    plan: Checked, brokers: Brokers, ledger: Ledger, doubtful: Sequence[Entry], resolved: Resolved
) -> None:
    open_still = {entry.number: entry.sent_at for entry in doubtful}
    confirmed = _last_confirmed(ledger, plan.header.plan)
    found = _on_brokers(plan, brokers, open_still, confirmed, resolved.notes)
    for presence, state in _SHOWN:
        keys = [entry.key for entry in doubtful if found.get(entry.number) == presence]
        resolved.count(state, ledger.resolve(keys, state, f"the broker shows that it was {presence}"))


def _last_confirmed(ledger: Ledger, plan: str) -> Mapping[int, int]:
    """Return number -> when it was sent, of the last letters that brokers confirmed by themselves: what was
    resolved otherwise says how."""
    last = ledger.entries(plan, "confirmed", _LAST)
    return {entry.number: entry.sent_at for entry in last if not entry.detail}


def _on_brokers(
    plan: Checked,
    brokers: Brokers,
    doubtful: Mapping[int, int],
    confirmed: Mapping[int, int],
    notes: list[str],
) -> Mapping[int, Presence]:
    """Return number -> what the letter's broker shows of it; both maps say when each was sent.

    A broker that shows nothing of what it had confirmed has lost it, or lies.
    """
    found: dict[int, Presence] = {}
    name = plan.header.plan
    known = _last_of_each_broker(plan, confirmed) if doubtful else {}
    for broker, letters in _rebuild(plan, doubtful, notes).items():
        try:
            before = planfile.bounds_of(plan.store, name, broker)
            since = min(doubtful.values())
            proof = brokers.get(broker).find(Search(name, letters, since, before))
            shown, doubts = dict(proof.shown), [*proof.doubts]
            is_another = proof.is_another
            sure = known.get(broker, []) if is_another or "not_sent" in shown.values() else []
            if sure:  # asked by itself: what a broker counts may be of the letters that it is asked of
                since = min(confirmed[letter.number] for letter in sure)
                proof = brokers.get(broker).find(Search(name, sure, since, before))
            lacking = [one.record.record_id for one in sure if proof.shown.get(one.number) != "sent"]
            if is_another and lacking:
                doubts.append(_LACKS.format(len(lacking), len(sure), lacking[0]))
            denied = [one.record.record_id for one in sure if proof.shown.get(one.number) == "not_sent"]
            if denied:
                shown = {number: "sent" if was == "sent" else "unknown" for number, was in shown.items()}
                doubts.append(_DENIES.format(denied[0]))
        except (BrokerError, UsageError) as error:
            notes.append(f"{broker} could not be asked: {error}")
            continue
        if "unknown" in shown.values():
            notes += [f"{broker}: {doubt}" for doubt in doubts or [_SILENT]]
        found |= shown
    return found


def _last_of_each_broker(plan: Checked, confirmed: Mapping[int, int]) -> Mapping[str, list[Outgoing]]:
    """Return those that are in the archive still."""
    last: dict[str, deque[int]] = {}
    for letter in plan.letters():
        if letter.number in confirmed:
            last.setdefault(letter.broker, deque(maxlen=_WITNESSES)).append(letter.number)
    try:
        return _rebuild(plan, {number for some in last.values() for number in some}, [])
    except DlqError:
        return {}


def _rebuild(plan: Checked, numbers: Collection[int], notes: list[str]) -> dict[str, list[Outgoing]]:
    """Return the letters of each broker, as they were sent."""
    letters = [x for x in plan.letters() if x.number in numbers] if numbers else []
    changes = edits.load(plan.store, plan.header)
    try:
        records = Loader(plan.store).records(letters)
    except ArchiveError as error:
        notes.append(f"no broker could be asked: {error}")
        return {}
    by_broker: dict[str, list[Outgoing]] = {}
    for letter, record in zip(letters, records, strict=True):
        outgoing = edits.planned_outgoing(letter, record, changes, plan.header.keep_headers)
        if outgoing is None and not letter.content:
            outgoing = make_outgoing(letter, changes.apply(record), plan.header.keep_headers)
        if outgoing is None:
            notes.append(f"letter {letter.record_id} is not what was planned: someone changed the archive")
            continue
        by_broker.setdefault(letter.broker, []).append(outgoing)
    return by_broker
