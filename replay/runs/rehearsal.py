"""Rehearse a plan: copies of some letters go to a private place, and what a consumer does to them is counted.

A rehearsal is no replay: the ledger hears nothing of it, and the plan's own targets get nothing. What cannot
be told apart counts against a failure: it has passed only where each of its copies is known to be consumed.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, islice, zip_longest
from typing import NamedTuple
from uuid import uuid4

from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage.store import Store, build
from dlq.connectors.base import Connector, Consumption, Outgoing, ReadRequest, SendRequest, Sent, Target
from dlq.core import documents
from dlq.core.brokers import plugin_of
from dlq.core.errors import HarmRefused, NotFound, UsageError
from dlq.core.headers.provenance import REHEARSAL, REPLAY_ID, REPLAY_OF
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Broker, Source
from dlq.replay.plans import edits
from dlq.replay.plans.destinations import target_named
from dlq.replay.plans.planfile import Checked, Header
from dlq.replay.runs.load import Loader

_MOST_NAMED = 3


class Tried(NamedTuple):
    """What became of one failure's copies. `failure` is its fingerprint, empty: nothing is classified."""

    failure: str
    sent: int
    passed: int
    died: int
    hung: int

    @property
    def has_passed(self) -> bool:
        """Whether all were consumed, and there were some."""
        return 0 < self.sent == self.passed


@dataclass(frozen=True)
class Book:
    """What the archive remembers of a plan's last rehearsal: written before anything is made."""

    rehearsal: str
    place: str
    dead_place: str
    removed: bool = False
    failures: Sequence[Tried] = ()
    run: int = 1
    """The how many-th of the plan's."""


def new_id(plan: str) -> str:
    """Name a rehearsal of a plan, as no other is."""
    return f"{plan}-{uuid4().hex[:8]}"


def _book_name(plan: str) -> str:
    return f"plans/{plan}.rehearsal.json"


def write(store: Store, plan: str, book: Book) -> None:
    """Keep what is known of a plan's rehearsal."""
    failures = [one._asdict() for one in book.failures]
    document = {"format": FORMAT_VERSION, **asdict(book), "failures": failures}
    store.put(_book_name(plan), json.dumps(document).encode())


def load(store: Store, plan: str) -> Book | None:
    """Return the last rehearsal of a plan; None where there was none. Raises ArchiveError, FormatTooNew."""
    try:
        content = store.get(_book_name(plan))
    except UsageError:
        return None
    found: Book = build(_book_name(plan), content, partial(documents.build, Book))
    return found


def only_place(header: Header) -> tuple[str, Target]:
    """Return the broker and the target of a plan's letters. Raises UsageError where there are several: a
    rehearsal is for one consumer."""
    targets = sorted({target_named(one)._replace(routing_key="") for one in header.targets})
    if not targets:
        raise UsageError(f"plan {header.plan} has no letters to rehearse; make another plan")
    if len(targets) > 1 or len(header.brokers) > 1:
        named = ", ".join(map(str, targets[:_MOST_NAMED])) + (", …" if len(targets) > _MOST_NAMED else "")
        raise UsageError(
            f"plan {header.plan} goes to several places ({named}; brokers {', '.join(header.brokers)}), and "
            "a rehearsal is for one consumer; make a plan for each (--source, --where)"
        )
    return next(iter(header.brokers)), targets[0]


def sample(dead: Iterable[tuple[str, str]], per_failure: int, limit: int) -> dict[str, str]:
    """Choose letters, given as (record id, failure), the oldest first: of each failure the oldest and the
    newest, then what died before that; no failure gets a further one before each has as many."""
    by_failure: dict[str, list[str]] = defaultdict(list)
    for record_id, failure in dead:
        by_failure[failure].append(record_id)
    ranked = (
        [(one, name) for one in (ids[0], *ids[:0:-1])][:per_failure] for name, ids in by_failure.items()
    )
    return dict(islice(filter(None, chain.from_iterable(zip_longest(*ranked))), limit))


def account(
    chosen: Mapping[str, str], died: Collection[str], left: Collection[str], untold: int
) -> list[Tried]:
    """Return what became of the copies (record id -> failure): `died` came back, `left` were not consumed, or
    could not be sent, and of `untold` more of them nobody knows which they are."""
    of: dict[str, list[str]] = defaultdict(list)
    for record_id, failure in chosen.items():
        of[failure].append(record_id)
    return [_account(failure, ids, {*died}, {*left}, untold) for failure, ids in of.items()]


def _account(failure: str, ids: Sequence[str], died: set[str], left: set[str], untold: int) -> Tried:
    dead, waiting = died.intersection(ids), left.intersection(ids) - died
    gone = len(ids) - len(dead) - len(waiting)
    doubtful = min(gone, untold)
    return Tried(failure, len(ids), gone - doubtful, len(dead), len(waiting) + doubtful)


class Stage:
    """The private places of one of a plan's rehearsals. Each has other names: what brokers count for a place,
    and groups have committed there, may outlive it for a while."""

    def __init__(self, connector: Connector, broker: Broker, plan: str, run: int = 1) -> None:
        """Take the broker of a rehearsal. Raises UsageError where it can have none."""
        self._connector, self.broker, self._kind = connector, broker, plugin_of(broker.kind)
        self._plan, self.run = plan, run
        self.private = connector.private(f"dlq.rehearsal.{plan}" + (f".{run}" if run > 1 else ""))
        self._way = SendRequest(f"rehearsal-{plan}", window=100, private=[self.private.target])

    def at_run(self, run: int) -> "Stage":
        """Name the places of another of the plan's rehearsals."""
        return Stage(self._connector, self.broker, self._plan, run)

    @property
    def dead_place(self) -> str:
        """What dies comes back there."""
        return next(iter(self.private.dead.values()))

    def remove(self) -> None:
        """Leave nothing on the broker. Raises BrokerError."""
        self._connector.forget(self._way)
        self.private.remove()

    def send(self, copies: Sequence[Outgoing]) -> list[Sent]:
        """Send copies to the private place; what became of each. Raises BrokerError."""
        with closing(self._connector.publisher(self._way)) as publisher:
            return list(publisher.publish(iter(copies)))

    def count_left(self, sent: int) -> int | None:
        """Return how many of so many copies are not consumed, those that consumers hold among them; None
        while nobody can tell."""
        seen = self._connector.consumption([self.private.target]).get(self.private.target, ())
        if not seen:
            return sent if self._kind.keeps_letters else None
        expected = sent - self._count_dead()
        left = [known for one in seen if (known := _left_of(one, expected)) is not None]
        return max(left) if len(left) == len(seen) else None

    def is_whole(self) -> bool:
        """Return whether the places that were made are there still: what went with one was not consumed."""
        dead = [Target(kind, name) for kind, name in self.private.dead.items() if self.private.makes_dead]
        return not self._connector.missing_targets([self.private.target, *dead])

    def _count_dead(self) -> int:
        with suppress(NotFound):  # Classic makes it with its first message
            return self._connector.gauge(self._source(self.private.dead)).depth or 0
        return 0

    def find_left(self, left: int | None) -> list[Record]:
        """Return those of the copies that are not consumed which can be looked at. A log keeps what is
        consumed, too, and the private one has a single queue: those are its last."""
        if left == 0:
            return []
        found, _ = self.read(self.private.place)
        return found[-left:] if left and self._kind.keeps_letters else found

    def find_dead(self) -> tuple[list[Record], int | None]:
        """Return what died, and how many more did that nobody can look at; None: nobody tells. Raises
        BrokerError."""
        elsewhere = self.private.collect()
        shown, unseen = self.read(self.private.dead)
        return [*elsewhere, *shown], unseen

    def read(self, place: Mapping[str, str]) -> tuple[list[Record], int | None]:
        """Return what lies in one of the places, which may not be there yet, and how many more letters do,
        which the broker does not show: Classic ends a browse early; None: it does not tell. Artemis can only
        take what is there, and give it back."""
        for force in (False, True):
            request = ReadRequest(self._source(place), "copy", "rehearsal", force=force)
            with suppress(HarmRefused, NotFound), closing(self._connector.read(request)) as reading:
                found = [record for batch in reading.batches() for record in batch.records]
                return found, None if reading.snapshot is None else max(0, reading.snapshot - len(found))
        return [], 0

    def _source(self, place: Mapping[str, str]) -> Source:
        return self._kind.source(name="rehearsal", broker=self.broker.name, **place)  # type: ignore[arg-type]


def _left_of(seen: Consumption, expected: int) -> int | None:
    """Return how many copies are left, by acknowledgements; without them what consumers hold is not known,
    unless there are none."""
    if seen.acknowledged is not None:
        return max(seen.waiting, expected - seen.acknowledged)
    return None if seen.consumers else seen.waiting


def copies_of(
    store: Store, checked: Checked, chosen: Collection[str], to: Target, rehearsal: str
) -> list[Outgoing]:
    """Return the copies of a plan's letters, each as it would be replayed, but for where it goes and its
    marks. Raises UsageError for what is not what was planned."""
    header = checked.header
    loader = Loader(store, lean=header.edits is None)
    letters = [one for one in checked.letters() if one.record_id in chosen]
    loader.check(header, letters, None)
    changes = edits.load(store, header)
    copies = []
    for letter, record in zip(letters, loader.records(letters), strict=True):
        planned = edits.planned_outgoing(letter, record, changes, header.keep_headers)
        if planned is None:
            raise UsageError(
                f"letter {letter.record_id[:12]} is not what was planned: someone changed the archive; "
                "run dlq verify, and make a new plan"
            )
        key = sha256(f"{rehearsal}\0{letter.key}".encode()).hexdigest()[:32]
        marks = {**planned.provenance, REPLAY_ID: key, REHEARSAL: rehearsal}
        copies.append(planned._replace(target=to, provenance=marks))
    return copies


def wait(
    stage: Stage, sent: int, seconds: float, stop: Callable[[], bool], tell: Callable[[int | None], None]
) -> int | None:
    """Wait until all copies are consumed or dead, `stop` says so, or time is over; return what is left."""
    for _ in patience.tries(seconds, patience.RECHECK):
        if (left := stage.count_left(sent)) == 0 or stop():
            break
        tell(left)
    time.sleep(patience.DEAD_LETTERED)
    return left


class Found(NamedTuple):
    """What became of each failure's copies, and those that died: the letter -> how it lies there."""

    failures: Sequence[Tried]
    died: Mapping[str, Record]
    untold: int
    """Copies of which nobody knows what became of them."""


def look(stage: Stage, chosen: Mapping[str, str], sent: Set[str], left: int | None) -> Found:
    """Look at what is left of the copies that were sent, and at what died."""
    waiting = {*map(letter_of, stage.find_left(left))} & sent
    dead, unseen = stage.find_dead()
    died = {one: record for record in dead if (one := letter_of(record)) in sent}
    held = (len(sent) - len(died) if left is None or unseen is None else left + unseen) - len(waiting)
    untold = max(0, held) + sum(letter_of(record) not in sent for record in dead)
    return Found(account(chosen, died, waiting | (chosen.keys() - sent), untold), died, untold)


def letter_of(record: Record) -> str:
    """Return the id of the letter that this is a copy of."""
    return record.headers.get(REPLAY_OF) or record.properties.get(REPLAY_OF) or ""
