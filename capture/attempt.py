"""One reading, from its first batch until its letters are durable, acknowledged and settled.

The order is the commit protocol: segment, manifest, acknowledgement, settled. Segments are written by
one thread while the next batch is read; the reading itself is touched by the caller's thread only.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, cast

from dlq.archive import losses, manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.segments import commit
from dlq.archive.storage.store import Store
from dlq.capture.deduplication import SEEN, Deduplicator
from dlq.connectors.base import Batch, Gap, Reading, ReadRequest, Skipped
from dlq.core.columns import column, join
from dlq.core.errors import ArchiveError, BrokerError, DlqError, PoisonMessage
from dlq.core.record import Record
from dlq.core.runtime.interpreter import quick_thread_switches, rare_garbage_collection
from dlq.core.text import shorten

SEGMENT_ROWS = 2_000
_MOST_SEGMENT_ROWS = 10_000
"""While one segment is being written, the next one grows: fewer, larger ones cost less, and nobody waits."""
SEGMENT_BYTES = 32 * 2**20
_FLUSH_SECONDS = 30.0
"""Brokers time consumers out that hold letters for long; nothing waits longer than this for its segment."""
_SETTLE_SECONDS = 2.0
_SEGMENTS_AHEAD = 1
_MOST_NAMED, _NAME_WIDTH = 1000, 500
"""What is told of letters that stay: of how many, and how much of each. A broker may send them for ever."""


@dataclass
class Tally:
    """Counts of letters: `captured` are durable, `recaptured` were durable since an earlier pull,
    `settled` are acknowledged and the broker has answered since. `segments` are committed."""

    delivered: int = 0
    captured: int = 0
    recaptured: int = 0
    settled: int = 0
    segments: int = 0
    bytes: int = 0
    skipped: int = 0
    left: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """The first `_MOST_NAMED` letters that were skipped, and gaps, in words."""
    gone: int = 0
    """Letters of the snapshot that a log has lost."""

    def __add__(self, other: "Tally") -> "Tally":
        """Return the counts of both."""
        return Tally(
            self.delivered + other.delivered,
            self.captured + other.captured,
            self.recaptured + other.recaptured,
            self.settled + other.settled,
            self.segments + other.segments,
            self.bytes + other.bytes,
            self.skipped + other.skipped,
            (self.left + other.left)[:_MOST_NAMED],
            (self.gaps + other.gaps)[:_MOST_NAMED],
            self.gone + other.gone,
        )


def _describe(one: Skipped) -> str:
    return shorten(f"{one.physical_id}: {one.reason}", _NAME_WIDTH)


Progress = Callable[[Tally, int | None], None]
Awaits = Callable[[Literal["broker", "archive"]], None]
"""Told whom a pull turns to next, so that silence can be laid at the right door."""
_Matched = dict[int, set[str]]
_Scan = Generator[Batch, None, None]


@dataclass
class _Flush:
    """Letters on their way to the disk, and what may be acknowledged once they are there."""

    parts: list[Sequence[Record]] = field(default_factory=list)
    rows: int = 0
    matched: _Matched = field(default_factory=dict)
    truer: dict[int, list[Record]] = field(default_factory=dict)
    """Of those that are matched, letters that tell more than what is archived of them."""
    position: int = 0
    size: int = 0
    checkpoint: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)

    def is_due(self, idle: bool, behind: bool) -> bool:
        """Full, old, or the broker waits for acknowledgements before it gives more; `behind`: it would not be
        written at once."""
        most = _MOST_SEGMENT_ROWS if behind else SEGMENT_ROWS
        full = self.rows >= most or self.size >= SEGMENT_BYTES
        return full or idle or time.monotonic() - self.since > _FLUSH_SECONDS

    def records(self) -> Sequence[Record]:
        """Return all letters in one piece."""
        return join(self.parts)


class Attempt:
    """State of one reading; `run` does it all."""

    def __init__(
        self,
        store: Store,
        reading: Reading,
        request: ReadRequest,
        known: Deduplicator,
        tally: Tally,
        first_number: int,
        awaits: Awaits,
        missing: set[str],
    ) -> None:
        self._store, self._reading, self._request, self._known, self._tally = (
            store,
            reading,
            request,
            known,
            tally,
        )
        self.last_number = first_number - 1
        self._awaits, self._missing = awaits, missing
        self._open = _Flush()
        self._writing: deque[tuple[_Flush, Future[Manifest | None]]] = deque()
        self._acknowledged: deque[tuple[_Flush, Manifest | None]] = deque()
        self._settled_position = 0
        self._last_settle = time.monotonic()

    def run(self, deadline: float | None, progress: Callable[[Tally], None]) -> None:
        """Read to the end, the deadline, an interruption or a full disk; what is durable by then is
        acknowledged."""
        with rare_garbage_collection(), quick_thread_switches(), ThreadPoolExecutor(1, "segments") as writer:
            try:
                with closing(cast(_Scan, self._reading.batches())) as batches:
                    for batch in batches:
                        self._take(batch)
                        if self._open.is_due(not batch.records, self._is_writing()) and self._has_news():
                            self._submit(writer)
                        self._collect(_SEGMENTS_AHEAD)
                        progress(self._tally)
                        if deadline is not None and time.monotonic() >= deadline:
                            break
                if self._has_news():
                    self._submit(writer)
                self._finish(progress)
            except (BrokerError, PoisonMessage):
                self._archive_all(writer)
                raise
            except (KeyboardInterrupt, ArchiveError):
                self._save()
                raise

    def _archive_all(self, writer: ThreadPoolExecutor) -> None:
        """Write what has come. Of a log that settles it; of a queue it cannot be acknowledged any more, and
        is known if it comes again. Raises ArchiveError."""
        if self._has_news():
            self._submit(writer)
        if self._reading.settles_at_once:
            self._save()
        for _, written in self._writing:
            written.result()

    def list_unsettled(self) -> set[str]:
        """Return the ids of letters that have come and are not settled: a queue that keeps its letters
        delivers them again. Raises ArchiveError."""
        found: set[str] = set()
        for flush in (*(one for one, _ in (*self._acknowledged, *self._writing)), self._open):
            found.update(column(flush.records(), "record_id"), *flush.matched.values())
        for _, manifest in self._acknowledged:
            if manifest is not None:
                found.update(segments.record_ids(self._store, manifest).to_pylist())
        return found

    def _is_writing(self) -> bool:
        return any(not future.done() for _, future in self._writing)

    def _has_news(self) -> bool:
        flush = self._open
        return bool(flush.rows or flush.matched or flush.checkpoint or flush.gaps)

    def _take(self, batch: Batch) -> None:
        new, matched = self._known.sort_out(batch.records)
        self._reading.alike = self._known.has_alike
        flush = self._open
        if new:
            flush.parts.append(new)
            flush.rows += len(new)
        for owner, delivered in matched.items():
            flush.matched.setdefault(owner, set()).update(delivered)
            flush.truer.setdefault(owner, []).extend(self._known.truer(owner, delivered))
        if self._missing:
            self._missing.difference_update(column(new, "record_id"), *matched.values())
        flush.position = batch.position
        flush.checkpoint.update(batch.checkpoint)
        flush.gaps += [*batch.gaps, *(one.passed for one in batch.skipped if one.passed is not None)]
        size = sum(column(batch.records, "body_size"))
        flush.size += size
        tally = self._tally
        tally.delivered += len(batch.records)
        tally.recaptured += sum(len(ids) for owner, ids in matched.items() if self._is_of_another_pull(owner))
        tally.bytes += size
        tally.skipped += len(batch.skipped)
        tally.left += [_describe(one) for one in batch.skipped[: _MOST_NAMED - len(tally.left)]]
        tally.gaps += map(str, batch.gaps[: _MOST_NAMED - len(tally.gaps)])
        tally.gone += sum((gap.end or gap.first) - gap.first for gap in batch.gaps if gap.is_counted)

    def _submit(self, writer: ThreadPoolExecutor) -> None:
        flush, self._open = self._open, _Flush()
        if flush.rows or flush.checkpoint or flush.gaps:
            self.last_number += 1
            before = [one for _, one in self._writing]
            future: Future[Manifest | None] = writer.submit(self._write, flush, self.last_number, before)
        else:
            future = Future()
            future.set_result(None)
        self._writing.append((flush, future))

    def _write(self, flush: _Flush, number: int, before: Iterable[Future[Any]]) -> Manifest | None:
        """Write nothing where `before` was not written, and what is lost first: behind a checkpoint nobody
        looks for it again. Raises ArchiveError, also that of `before`."""
        for one in before:
            one.result()
        request = self._request
        if flush.gaps:
            missing = [losses.Missing(*gap[:4]) for gap in flush.gaps]
            losses.keep(self._store, request.source.name, missing)
        if not (flush.rows or flush.checkpoint):
            return None
        manifest = commit(
            self._store,
            request.source.name,
            request.pull_id,
            number,
            request.mode,
            flush.records(),
            flush.checkpoint,
            self._reading.settles_at_once and request.mode == "drain",
            request.source.broker,
        )
        self._tally.captured += manifest.rows
        self._tally.segments += bool(manifest.rows)
        return manifest

    def _is_of_another_pull(self, owner: int) -> bool:
        return owner == SEEN or (owner >= 0 and self._known.manifests[owner].pull_id != self._request.pull_id)

    def _collect(self, ahead: int) -> None:
        """Acknowledge, in order, what is durable; wait for it where more than `ahead` segments are open."""
        while self._writing and (len(self._writing) > ahead or self._writing[0][1].done()):
            flush, future = self._writing[0]
            self._awaits("archive")
            manifest = future.result()  # what cannot be written stays first, and nothing after it counts
            self._replace(flush)
            self._awaits("broker")
            if self._request.mode == "drain":
                self._acknowledged.append((flush, manifest))
            self._writing.popleft()
            flush.parts = []  # durable; only what is to be settled is still of interest
            if self._request.mode == "drain":
                self._reading.acknowledge(flush.position)
        is_due = self._reading.alike or time.monotonic() - self._last_settle > _SETTLE_SECONDS
        if self._acknowledged and is_due:
            self._settle()

    def _replace(self, flush: _Flush) -> None:
        """Replace a letter's record by what the broker told last, before the broker may forget it."""
        for owner, truer in flush.truer.items():
            if truer:
                self._known.replace(owner, truer)
        flush.truer = {}

    def _finish(self, progress: Callable[[Tally], None]) -> None:
        self._collect(ahead=0)
        if self._acknowledged:
            self._settle()
        progress(self._tally)

    def _save(self) -> None:
        """Acknowledge what is durable, and ask the broker, as far as connection and disk allow."""
        with suppress(DlqError):
            self._collect(ahead=0)
        with suppress(DlqError):
            if self._acknowledged:
                self._settle()

    def _settle(self) -> None:
        """Ask the broker, then mark what its answer covers."""
        covered = self._reading.settled_position()
        self._tally.settled += max(0, covered - self._settled_position)
        self._settled_position = max(covered, self._settled_position)
        self._last_settle = time.monotonic()
        matched: _Matched = {}
        answered = [*takewhile(lambda one: one[0].position <= covered, self._acknowledged)]
        for flush, manifest in answered:
            if manifest is not None and not manifest.settled:
                manifests.settle(self._store, manifest)
            for owner, ids in flush.matched.items():
                matched.setdefault(owner, set()).update(ids)
        for owner, ids in matched.items():
            if owner >= 0 and not self._known.manifests[owner].settled:
                changed = manifests.settle(self._store, self._known.manifests[owner], ids)
                self._known.manifests[owner] = changed
        for _ in answered:  # whoever interrupts this has it done again
            self._acknowledged.popleft()
