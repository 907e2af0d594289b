"""Carry out a plan: plan -> ledger -> archive -> connector, and what became of each letter -> ledger."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple, Protocol

from dlq.archive.storage.store import Store
from dlq.connectors.base import (
    UNSENT_SECONDS,
    Connector,
    Outgoing,
    Search,
    SendRequest,
    Sent,
)
from dlq.core.clock import from_iso, now
from dlq.core.errors import BrokerError, ConnectionLost, DlqError, UsageError
from dlq.core.runtime.interpreter import quick_thread_switches, rare_garbage_collection
from dlq.core.settings import Settings
from dlq.core.values.units import seconds
from dlq.replay import came_back, status
from dlq.replay.ledger.claims import UNSENT_SHARE, Claims
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.ledger.location import is_server
from dlq.replay.plans import approvals, edits, planfile
from dlq.replay.plans.destinations import Destination, is_allowed, target_named
from dlq.replay.plans.edits import Edits
from dlq.replay.plans.letters import Letter
from dlq.replay.plans.planfile import Header
from dlq.replay.runs import elsewhere, marks
from dlq.replay.runs.bounds import Bounds
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.load import Loader
from dlq.replay.runs.pace import Pace, Stop
from dlq.replay.states import MAY_SEND, State

_CLAIMED_SHARE = 4
"""A quarter of the window is claimed at once, and the next quarter meanwhile; the rest is the
connector's, for letters in flight."""
_ASKED_AT_ONCE = 2_000
_UNKNOWN = "the run ended before the broker answered"
_NOT_ALLOWED = "[replay] targets does not let letters go there"
_DEADLY = "the connection ended both times that it was sent, and the broker has not kept it"
_MOST_NAMED = 20
_NAMED_AS: Mapping[State, str] = {"refused": "refused", "planned": "left out, and may go later"}
_OUTLIVED = (
    "since {} an owner's word does not hold any more for some of its letters (holds_for in [consumers]); "
    "make a new plan, which leaves them out"
)
_CHANGED = "the archive holds something else than what was planned"


@dataclass
class Run:
    """What one apply has done so far."""

    plan: str
    total: int
    at_most: int | None = None
    sent: int = 0
    """Letters given to the broker by this run, whatever became of them, but for those that proved unsent."""
    skipped: int = 0
    """Letters that the ledger knew already."""
    outcomes: dict[str, int] = field(default_factory=dict)
    places: Counter[Destination] = field(default_factory=Counter)
    """(Broker, target) -> letters given to it."""
    confirmed: Counter[Destination] = field(default_factory=Counter)
    """And those of them that it confirmed."""
    stopped: bool = False
    changed: list[str] = field(default_factory=list)
    """Record ids of letters that are not what was planned any more: refused, nothing of them was sent."""
    refused: list[str] = field(default_factory=list)
    """The first of those that the broker does not take, or that were left out, each with the reason."""
    lost: list[str] = field(default_factory=list)
    """Brokers that failed in the middle, and why."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Where letters went by another plan since this was made, or may have, in words -> how many of this are
    therefore left out."""
    notes: list[str] = field(default_factory=list)
    """What the user should know although every letter has its answer."""
    seconds: float = 0.0


_Progress = Callable[[Run], None]


class Send(Protocol):
    """Send at most so many letters of the plan, or all that are left; of one in order those whose turn it is,
    and whoever knows that asks whether the plan has ended."""

    def __call__(self, at_most: int | None, turn: Sequence[Letter] | None = None) -> Run:
        """Send the letters. Raises UsageError for a plan in order without a word of whose turn it is."""


def apply(
    store: Store,
    settings: Settings,
    plan: str,
    brokers: Brokers,
    ledger: Ledger,
    stop: Stop | None = None,
    progress: _Progress = lambda _run: None,
) -> Run:
    """Send what of `plan` was never sent; every letter ends in a state of the ledger. Raises as `applying`.

    A broker that fails in the middle is no error here: what it leaves is `in_doubt`, and `Run.lost` says why.
    """
    with applying(store, settings, plan, brokers, ledger, stop or Stop(store, plan), progress) as send:
        return send(None)


@contextmanager
def applying(
    store: Store,
    settings: Settings,
    plan: str,
    brokers: Brokers,
    ledger: Ledger,
    stop: Stop,
    progress: _Progress = lambda _run: None,
) -> Iterator[Send]:
    """Hold a plan, and send some of it at a time.

    Raises UsageError for a plan that lacks a consent, or for a plan or an archive that was changed, Busy
    when the plan is being applied, and from `send` BrokerError when a broker can't be reached at all.
    """
    checked = check_plan(store, settings, plan, ledger)
    header = checked.header
    loader = Loader(store, lean=header.edits is None, hashes=bool(header.files))
    loader.check(header, checked.letters(), ledger)
    changes = edits.load(store, header)
    mark = marks.Mark(store, plan, ledger.owner, header.letters)
    bounds = Bounds(store, checked, ledger)
    pace = Pace(header.rate, stop)
    shared = _Shared(store, settings, checked, ledger, bounds, mark, loader, changes, stop, progress, pace)

    def send(at_most: int | None, turn: Sequence[Letter] | None = None) -> Run:
        run = Run(plan, header.letters, at_most)
        if header.in_order and turn is None:
            raise UsageError(f"plan {plan} goes in order, key by key, and this would send it in any order")
        keys = None if turn is None else [letter.key for letter in turn]
        came_back.confirm(store, ledger, plan, keys)  # it may be there since the step before
        if turn is None and status.has_ended(store, ledger, header):
            run.skipped = header.letters
            return run
        started = time.monotonic()
        gone: Mapping[int, str] = {}
        if turn is None:
            going = elsewhere.list_going(store, header)  # before the ledger: it has those that end meanwhile
            since = elsewhere.list_since(ledger, header, going)
            gone = elsewhere.find_gone(ledger, header, since, checked.letters())
        run.elsewhere = Counter(gone.values())
        for broker in header.brokers:
            letters = checked.letters() if turn is None else turn
            own = (one for one in letters if one.broker == broker and one.number not in gone)
            is_step = at_most is not None and turn is None
            left = _skip_known(ledger, header, run, own) if is_step else own
            _Sender(shared, run, broker, brokers.get(broker)).send(left)
        run.seconds = time.monotonic() - started
        if turn is None:
            run.notes += forget_ended(store, ledger, header, brokers)
        return run

    with store.lock(f"plan-{plan}"), mark, rare_garbage_collection(), quick_thread_switches():
        stop.forget_old_requests()
        marks.expire(store, ledger, plan)
        if header.in_order:  # what the ledger knows decides whose turn it is
            came_back.confirm(store, ledger, plan)
        yield send


def _skip_known(ledger: Ledger, header: Header, run: Run, letters: Iterator[Letter]) -> Iterator[Letter]:
    """Skip what the ledger knows, many at once: a step claims no more than it may send, and would ask for the
    letters of the steps before one by one."""
    while some := [*islice(letters, _ASKED_AT_ONCE)]:
        known = ledger.states([one.key for one in some], header.plan, header.made_at)
        left = [one for one in some if known.get(one.key, "planned") in MAY_SEND]
        run.skipped += len(some) - len(left)
        yield from left


def check_plan(store: Store, settings: Settings, plan: str, ledger: Ledger | None) -> planfile.Checked:
    """Return a plan that may be applied. Raises UsageError for one that lacks a consent, outlived the word of
    an owner, sends where nothing may go, or was changed. Without a ledger nothing was ever sent, and nobody
    consented."""
    checked = planfile.check(store, plan)
    header = checked.header
    moment = now()
    is_late = _word_ends(header) <= moment
    is_bound = is_late or approvals.is_needed(header, settings.replay)
    if is_bound and not (ledger and status.has_ended(store, ledger, header)):
        if is_late:
            raise UsageError(f"plan {plan}: {_OUTLIVED.format(header.owners_until)}")
        approvals.check(header, ledger.events() if ledger else (), settings.replay, moment)
    for target in header.targets:
        if not is_allowed(target_named(target), settings.replay.targets):
            raise UsageError(
                f"plan {plan} sends to {target}, and [replay] targets lets letters go to "
                f"{', '.join(settings.replay.targets)} alone; add it there, or make another plan"
            )
    _check_bound(checked)
    return checked


def _word_ends(header: Header) -> float:
    """Return until when its owners' word holds, in microseconds; where that cannot be read it has ended."""
    return math.inf if header.owners_until is None else from_iso(header.owners_until) or 0


def _check_bound(plan: planfile.Checked) -> None:
    """Raise UsageError for a plan of an older dlq: nothing says what its letters were."""
    if any(not letter.content for letter in islice(plan.letters(), 1)):
        raise UsageError(
            f"plan {plan.header.plan} binds no content of its letters, as an older dlq made it; "
            "make a new one"
        )


def forget_ended(store: Store, ledger: Ledger, header: Header, brokers: Brokers) -> list[str]:
    """Do as `forget` does, where nothing of the plan is open."""
    return forget(header, brokers) if status.has_ended(store, ledger, header) else []


def forget(header: Header, brokers: Brokers) -> list[str]:
    """Remove witnesses and markers of a plan with nothing open; return where that failed, and why."""
    failed = []
    for broker in header.brokers:
        witness = header.leaves_witness(broker)
        private = [*map(target_named, header.targets)] if witness or header.private else []
        try:
            brokers.get(broker).forget(SendRequest(header.plan, witness=witness, private=private))
        except (BrokerError, UsageError) as error:
            failed.append(
                f"what the plan left on {broker} could not be removed: {error}; "
                f"`dlq replay reconcile {header.plan}` tries again"
            )
    return failed


class _Shared(NamedTuple):
    """What all senders of a plan work with."""

    store: Store
    settings: Settings
    plan: planfile.Checked
    ledger: Ledger
    bounds: Bounds
    mark: marks.Mark
    loader: Loader
    changes: Edits
    stop: Stop
    progress: _Progress
    pace: Pace
    """Of all steps and brokers: the first letter of each would be free of one of its own."""

    @property
    def lease(self) -> float:
        """Seconds for which the ledger counts a letter as ours."""
        return seconds(self.settings.ledger.lease)

    @property
    def unsent_seconds(self) -> float:
        """How long a letter may wait to be written. By a ledger of this host alone nobody takes over what an
        apply holds: its lock outlives a lease."""
        return UNSENT_SHARE * self.lease if is_server(self.settings.ledger) else UNSENT_SECONDS

    def new_claims(self) -> Claims:
        """Return claims in which nothing is held yet."""
        header = self.plan.header
        return Claims(header.plan, self.ledger, self.lease, self.mark, header.made_at)


class _Sender:
    """The way of a plan's letters to one broker."""

    def __init__(self, shared: _Shared, run: Run, broker: str, connector: Connector) -> None:
        self._shared, self._run = shared, run
        self._broker, self._connector = broker, connector
        self._header = header = shared.plan.header
        self._claims = shared.new_claims()
        self._deaths: Counter[int] = Counter()
        self._answered_before: int | None = None
        """How many letters were answered when a connection ended last with one that nobody can tell of."""
        self._given_at = 0
        self._word_ends = _word_ends(header)
        self._failure: DlqError | None = None
        self._refusals: dict[str, tuple[int, str, int]] = {}
        """Reason -> the line that tells of it, the first letter, and how many there are."""
        window = max(3, shared.settings.replay.window or connector.window)
        per_second = math.ceil(header.rate) if header.rate else window
        self._chunk = max(1, min(window // _CLAIMED_SHARE, per_second))
        self._in_flight = window - 2 * self._chunk

    def send(self, own: Iterator[Letter]) -> None:
        """Send the plan's `own` letters; whatever ends it, the ledger knows.

        Where a connection ends with one letter in doubt, and the broker shows that it has not kept it, that
        letter is sent once more; when the connection ends with it again it is refused, and the rest goes.
        Where nobody tells, it stays in doubt, and the rest goes.
        """
        letters = self._shared.bounds.note_first(self._broker, self._connector, own)
        while lost := self._send_some(letters):
            again = self._not_kept(lost)
            if again is None:
                self._run.lost.append(f"{self._broker}: {lost}")
                return
            letters = chain(again, self._claims.given_back, letters)
            self._claims = self._shared.new_claims()

    def _request(self) -> SendRequest:
        header = self._header
        private = frozenset(map(target_named, header.private))
        witness = header.leaves_witness(self._broker)
        return SendRequest(header.plan, self._in_flight, witness, self._shared.unsent_seconds, private)

    def _send_some(self, letters: Iterator[Letter]) -> BrokerError | None:
        """Send some letters over one connection; return what ended it too early."""
        lost: BrokerError | None = None
        try:
            publisher = self._connector.publisher(self._request())
        except BrokerError as error:
            if self._answered_before is None:
                raise
            return error
        try:
            if publisher.anchor:
                self._shared.bounds.note(self._broker, publisher.anchor)
            for sent in publisher.publish(self._claim_letters(letters), self._claims.note_writing):
                letter, state = self._take_answer(sent)
                self._run.sent -= state == "planned"
                if state == "refused" or sent.outcome == "unsent":
                    self._name_refused(letter, sent.detail or "", _NAMED_AS[state])
        except BrokerError as error:
            lost = error
        finally:
            self._claims.end(_UNKNOWN)
            publisher.close()
            self._shared.progress(self._run)
        if self._failure is not None:
            raise self._failure
        return lost

    def _not_kept(self, lost: BrokerError) -> Sequence[Letter] | None:
        """Return what is to be sent again of what was in doubt when the connection ended; None where that was
        not one letter, or the rest must not go."""
        is_one = isinstance(lost, ConnectionLost) and len(self._claims.doubtful) == 1
        if not is_one or self._claims.is_over or self._run.stopped:
            return None
        [letter] = self._claims.doubtful
        [record] = self._shared.loader.records([letter])
        sent = edits.planned_outgoing(letter, record, self._shared.changes, self._header.keep_headers)
        if sent is None:
            return self._leave_in_doubt(letter, f"{self._broker}: {lost}; {_CHANGED}")
        plan = self._header.plan
        before = planfile.bounds_of(self._shared.store, plan, self._broker)
        try:
            proof = self._connector.find(Search(plan, [sent], self._given_at, before))
        except BrokerError:
            return None
        presence = proof.shown[letter.number]
        if presence == "sent":
            self._settle(letter, "confirmed", "the broker shows that it was sent")
            return []
        if presence == "unknown":
            return self._leave_in_doubt(letter, f"{self._broker}: {lost}")
        self._deaths[letter.number] += 1
        if self._deaths[letter.number] == 1:
            self._settle(letter, "planned", "the broker shows that it was not sent")
            self._run.sent -= 1
            return [letter]
        self._settle(letter, "refused", _DEADLY)
        return []

    def _leave_in_doubt(self, letter: Letter, lost: str) -> Sequence[Letter] | None:
        """Return nothing to send again: the rest goes. None where nothing was answered since the last time:
        then the letters are not what ends the connections."""
        answered = sum(self._run.outcomes.values()) - self._run.outcomes.get("in_doubt", 0)
        if answered == self._answered_before:
            return None
        self._answered_before = answered
        self._run.lost.append(f"{lost}; letter {letter.record_id} may have been taken: it stays in doubt")
        return []

    def _settle(self, letter: Letter, state: State, why: str) -> None:
        """Say what became of a letter that was in doubt."""
        if state == "refused":
            self._shared.ledger.record_results([Result(letter.key, state, why)])
            self._name_refused(letter, why)
        else:
            self._shared.ledger.resolve([letter.key], state, why)
        if self._run.outcomes.get("in_doubt"):
            self._run.outcomes["in_doubt"] -= 1
        self._count(letter, state)

    def _claim_letters(self, letters: Iterator[Letter]) -> Iterator[Outgoing]:
        """Yield letters to send. When the ledger or the archive fails this ends, so that what is in flight is
        still answered."""
        try:
            self._ask(letters, 0)
            while not self._run.stopped and (found := self._claims.take_claimed()) is not None:
                asked, claimed = found
                self._run.skipped += asked - len(claimed)
                self._shared.progress(self._run)
                more = self._ask(letters, len(claimed))
                yield from self._hand_out(claimed)
                if not (more or self._run.stopped):  # what of these was not sent leaves room
                    self._ask(letters, 0)
        except DlqError as error:
            self._failure = error

    def _ask(self, letters: Iterator[Letter], claimed: int) -> bool:
        """Claim the next letters, beside those that are claimed and not sent yet; return whether there are
        any."""
        most = self._run.at_most
        room = self._chunk if most is None else min(self._chunk, most - self._run.sent - claimed)
        if some := list(islice(letters, max(0, room))):
            self._claims.ask(some)
        return bool(some)

    def _hand_out(self, claimed: list[Letter]) -> Iterator[Outgoing]:
        loader, changes, keep = self._shared.loader, self._shared.changes, self._header.keep_headers
        records, read, files = loader.records(claimed), loader.files, self._header.files
        targets = self._shared.settings.replay.targets
        bound = {stem for stem in {letter.segment for letter in claimed} if files.get(stem, "") == read[stem]}
        for letter, record in zip(claimed, records, strict=True):
            if not self._shared.pace.wait(self._claims.renew_in_time) or self._outlives_word():
                self._run.stopped = True
                return
            if not self._claims.take(letter):
                continue
            outgoing = edits.planned_outgoing(letter, record, changes, keep, letter.segment in bound)
            if outgoing is None:
                self._take_answer(Sent(letter.number, "refused", _CHANGED))
                self._run.changed.append(letter.record_id)
                continue
            if not is_allowed(letter.target, targets):
                self._take_answer(Sent(letter.number, "refused", _NOT_ALLOWED))
                continue
            self._run.sent += 1
            self._given_at = now()
            self._run.places[letter.broker, letter.target] += 1
            yield outgoing

    def _outlives_word(self) -> bool:
        """Return whether the word of an owner has ended meanwhile, so that nothing more may go."""
        if now() < self._word_ends:
            return False
        self._run.notes.append(f"stopped: {_OUTLIVED.format(self._header.owners_until)}")
        return True

    def _take_answer(self, sent: Sent) -> tuple[Letter, State]:
        letter, state = self._claims.take_answer(sent)
        self._count(letter, state)
        return letter, state

    def _count(self, letter: Letter, state: State) -> None:
        self._run.confirmed[letter.broker, letter.target] += state == "confirmed"
        self._run.outcomes[state] = self._run.outcomes.get(state, 0) + 1

    def _name_refused(self, letter: Letter, why: str, what: str = "refused") -> None:
        """Name the letters that were refused, in one line for each reason."""
        refused, why = self._run.refused, f"{what}: {why}"
        line, first, more = self._refusals.get(why, (len(refused), letter.record_id, 0))
        if line < _MOST_NAMED:
            self._refusals[why] = line, first, more + 1
            who = f"letter {first} and {more} more are" if more else f"letter {first} is"
            refused[line : line + 1] = [f"{who} {why}"]
