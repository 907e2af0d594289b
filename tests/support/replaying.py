"""A broker for replay tests: a queue in a file, and a publisher that can fail at any letter.

What arrived is a line of the file with the letter's replay id, so that another process, or a run
after `kill -9`, can count what really was sent.
"""

import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

from support import preloaded
from support.archives import letter, write_analysis

from dlq.archive import segments
from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import (
    NO_CHECKPOINT,
    Checkpoint,
    Connector,
    Consumption,
    DeadLetterPlace,
    Gauge,
    Limits,
    Outcome,
    Outgoing,
    Presence,
    Proof,
    Search,
    SendPreview,
    SendRequest,
    Sent,
    Target,
    Writing,
    keep_no_mark,
)
from dlq.connectors.newer import NewerProof, NewerSearch
from dlq.core.configuration import parse
from dlq.core.errors import ConnectionLost, UsageError
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.record import Record
from dlq.core.settings import Settings, Source
from dlq.replay.ledger import opened as open_ledger
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.plan import make
from dlq.replay.plans.wanted import Wanted
from dlq.replay.reconcile import Decision, reconcile
from dlq.replay.runs.apply import Run, apply
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.pace import Stop, stopping_on_signals
from dlq.replay.status import counts

Fate = Callable[[int], Outcome]
PLACES = ("taken", "marked", "written", "answered")
"""Where a letter is on its way through `QueueFile.publish`, in this order."""


class Strike(NamedTuple):
    """The process sends itself a signal when so many letters have been at a place."""

    place: str
    letters: int
    signal: int = signal.SIGKILL


def confirm(_number: int) -> Outcome:
    return "confirmed"


class QueueFile:
    """`dlq.connectors.base.Connector`, as far as replay needs it."""

    window = 1000
    anchor = NO_CHECKPOINT

    def __init__(
        self,
        path: Path,
        fate: Fate = confirm,
        dies_at: int | None = None,
        error: type[BaseException] = ConnectionLost,
    ) -> None:
        """`dies_at`: the number of the letter at which `publish` raises `error` with the window in flight."""
        self.path, self.fate, self.dies_at, self.error = path, fate, dies_at, error
        self.pause = 0.0
        self.buffer = 0
        """How many of the letters that it was given `publish` holds before it writes the first."""
        self.strike: Strike | None = None
        self._been = Counter[str]()
        self.most = self.widest = 0
        self.witnesses: list[str] = []
        self.forgotten: list[tuple[str, bool]] = []
        self.keeps_what_was_left = False
        self.when_asked: Callable[[], object] = lambda: None
        """What happens while somebody asks for a preview."""
        self.unless_named: dict[Any, str] = {}
        self.before: Checkpoint = NO_CHECKPOINT
        self.not_there: set[str] = set()
        self.known_limits: dict[Target, Limits] = {}
        self.known_fates: list[Any] = []
        self.against_witness: list[str] | None = []
        self.consumed: Mapping[Target, Sequence[Consumption]] = {}
        self.log: Callable[[NewerSearch], NewerProof | None] = lambda _search: None

    def arrived(self) -> list[str]:
        """Replay ids in the order of arrival."""
        return self.path.read_text().split() if self.path.exists() else []

    def target_of(self, record: Record, to: str) -> Target | None:
        if to != "origin":
            kind, _, name = to.partition(":")
            if kind != "queue":
                raise UsageError(f"--to {to}: this broker has queues only")
            return Target("queue", name)
        return Target("queue", record.origin) if record.origin else None

    def preview(self, letter: Outgoing) -> SendPreview:
        self.when_asked()
        problem = "the body is too large" if letter.record.body_size > 100 else None
        return SendPreview(("x-death",), problem, unless_named=self.unless_named)

    def gauge(self, source: Source) -> Gauge:
        return Gauge(len(self.arrived()))

    def discover(self) -> list[DeadLetterPlace]:
        return []

    def consumers(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
        return {target: [target.name] for target in targets}

    def missing_targets(self, targets: Sequence[Target]) -> Mapping[Target, str]:
        gone = [target for target in targets if target.name in self.not_there]
        return {target: f"there is no queue {target.name}" for target in gone}

    def limits(self, targets: Sequence[Target]) -> Mapping[Target, Limits]:
        return self.known_limits

    def newer(self, search: NewerSearch) -> NewerProof | None:
        return self.log(search)

    def coverage(self) -> Sequence[Any]:
        return self.known_fates

    def consumption(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[Consumption]]:
        return self.consumed

    def publisher(self, request: SendRequest) -> "QueueFile":
        self.most = request.window
        if request.witness:
            self.witnesses.append(request.plan)
        return self

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        in_flight: deque[int] = deque()
        held: deque[Outgoing] = deque()
        with self.path.open("a", buffering=1) as queue:
            for count, one in enumerate(outgoing, 1):
                in_flight.append(one.number)
                held.append(one)
                self._is_at("taken")
                self.widest = max(self.widest, len(in_flight))
                while len(held) > self.buffer:
                    self._write(queue, held.popleft(), writing)
                if count == self.dies_at:
                    if self.error is ConnectionLost:
                        yield from (Sent(number, "in_doubt", "the connection ended") for number in in_flight)
                    raise self.error("the broker is gone")
                while len(in_flight) >= self.most:
                    yield self._answer(in_flight.popleft())
                    self._is_at("answered")
            for one in held:
                self._write(queue, one, writing)
        yield from (self._answer(number) for number in in_flight)

    def _write(self, queue: TextIO, one: Outgoing, writing: Writing) -> None:
        writing([one.number])
        self._is_at("marked")
        if self.fate(one.number) in ("confirmed", "in_doubt"):
            queue.write(one.provenance[REPLAY_ID] + "\n")
            time.sleep(self.pause)
        self._is_at("written")

    def _is_at(self, place: str) -> None:
        self._been[place] += 1
        if self.strike is not None and self.strike[:2] == (place, self._been[place]):
            os.kill(os.getpid(), self.strike.signal)

    def _answer(self, number: int) -> Sent:
        outcome = self.fate(number)
        return Sent(number, outcome, None if outcome == "confirmed" else f"it was {outcome}")

    def bounds(self, targets: Iterable[Target]) -> Checkpoint:
        return {str(target): len(self.arrived()) for target in set(targets)}

    def check_witness(self) -> list[str] | None:
        return self.against_witness

    def find(self, search: Search) -> Proof:
        self.before = search.before
        if search.plan not in self.witnesses:
            unknown: dict[int, Presence] = dict.fromkeys((one.number for one in search.letters), "unknown")
            return Proof(unknown, ["no witness was left"])
        there = set(self.arrived())
        return Proof(
            {
                one.number: "sent" if one.provenance[REPLAY_ID] in there else "not_sent"
                for one in search.letters
            }
        )

    def forget(self, request: SendRequest) -> None:
        if self.keeps_what_was_left:
            raise ConnectionLost("the broker is gone")
        self.forgotten.append((request.plan, request.witness))

    def close(self) -> None:
        pass


def settings(archive: Path, **tables: dict[str, object]) -> Settings:
    """One broker `shop`, one source `orders`; `source`, `ledger`, `replay` by keyword."""
    source = {"broker": "shop", "queue": "orders.dlq", **tables.get("source", {})}
    rest = {name: table for name, table in tables.items() if name != "source"}
    return parse(
        {
            "archive": str(archive),
            "brokers": {"shop": {"kind": "memory"}},
            "sources": {"orders": source},
            **rest,
        }
    )


def brokers(settings: Settings, queue: QueueFile) -> Brokers:
    """All of a configuration's brokers are this one queue, which has of a connector what replay needs."""
    return Brokers(settings, lambda _broker: cast(Connector, queue))


def fill(
    store: LocalStore, count: int, advice: str | None = "replay", start: int = 0, **values: object
) -> list[Record]:
    """A committed segment of letters and, unless `advice` is None, a verdict for each."""
    letters = [letter(number, origin_kind="queue", **values) for number in range(start, start + count)]
    segments.commit(store, "orders", f"pull{start}", 0, "drain", letters, {}, settled=True)
    if advice is not None:
        judge(store, {one.record_id: advice for one in letters})
    return letters


def judge(store: LocalStore, advice: Mapping[str, str], source: str = "orders") -> None:
    """An analysis that knows these letters only."""
    verdicts = [
        {
            "source": source, "record_id": record_id, "cause": "poison_ack", "advice": text,
            "origin": "orders", "origin_kind": "queue",
        }
        for record_id, text in advice.items()
    ]  # fmt: skip
    write_analysis(store, f"{time.time_ns()}", verdicts)


class Replaying:
    """Plans and applies with this test's archive, queue and ledger."""

    def __init__(self, store: LocalStore, config: Settings, queue: QueueFile, ledger: Ledger) -> None:
        self.store, self.config, self.queue, self.ledger = store, config, queue, ledger

    def plan(self, **wanted: Any) -> str:
        with brokers(self.config, self.queue) as opened:
            return make(self.store, self.config, Wanted(**wanted), opened).plan

    def planned(self, count: int, **wanted: Any) -> str:
        """A plan of so many letters, which are captured and classified before."""
        fill(self.store, count)
        return self.plan(**wanted)

    def apply(
        self, plan: str, stop: Stop | None = None, progress: Callable[[Run], None] = lambda _: None
    ) -> Run:
        with brokers(self.config, self.queue) as opened:
            return apply(self.store, self.config, plan, opened, self.ledger, stop, progress)

    def reconcile(self, plan: str, **decision: Any) -> dict[str, int]:
        with brokers(self.config, self.queue) as opened:
            resolved = reconcile(self.store, plan, opened, self.ledger, Decision(**decision))
        self.notes = resolved.notes
        return {"sent": resolved.sent, "not_sent": resolved.not_sent, "unknown": resolved.unknown}

    def states(self, plan: str) -> dict[str, int]:
        found = counts(self.store, self.ledger, planfile.load(self.store, plan))
        return {state: count for state, count in found.items() if count}

    def keys(self, plan: str) -> list[str]:
        return [one.key for one in planfile.letters(self.store, plan)]


def child(replay: Replaying, plan: str, strike: Strike | None = None) -> preloaded.Running:
    """Another process that applies a plan, with a window of 40."""
    struck = () if strike is None else (strike.place, f"{strike.letters}", f"{int(strike.signal)}")
    words = [replay.store.location, replay.config.ledger.url, str(replay.queue.path), plan, *struck]
    return preloaded.start(words, Path(replay.store.location), module="support.replaying")


def main() -> int:
    """That process: applies, and prints how many were sent and skipped."""
    archive, url, queue_file, plan, *place = sys.argv[1:]
    config, store = settings(Path(archive), replay={"window": 40}, ledger={"url": url}), LocalStore(archive)
    queue = QueueFile(Path(queue_file))
    queue.pause, queue.buffer = 0.001, 5
    if place:
        queue.strike = Strike(place[0], *map(int, place[1:]))
    stop = Stop(store, plan)
    with brokers(config, queue) as to, open_ledger(config.ledger, store) as ledger, stopping_on_signals(stop):
        run = apply(store, config, plan, to, ledger, stop)
    print(run.sent, run.skipped)
    return 0
