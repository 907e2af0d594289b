"""One pull: read a source, make its letters durable, acknowledge them, and say what happened."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from dlq.archive import losses, manifests, topology
from dlq.archive.losses import Loss
from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.segments import remove_uncommitted
from dlq.archive.storage.store import Store
from dlq.capture.attempt import SEGMENT_BYTES, Attempt, Awaits, Progress, Tally
from dlq.capture.deduplication import Deduplicator
from dlq.capture.source_aliases import name_letters
from dlq.connectors.base import Gauge, Mode, Reading, ReadRequest
from dlq.core import errors
from dlq.core.runtime import patience
from dlq.core.settings import Source

_RECONNECTS_WITHOUT_PROGRESS = 2
_LEAST_ROOM, _BYTES_OF_LETTER = 1 << 20, 2048


_Depth = Callable[[], int | None]
"""How many letters a source has now, whoever holds them; None: the broker does not tell."""


def proven_depth(gauge: Gauge) -> int | None:
    """Return all letters that a source has. A depth counts those that are ready: where somebody consumes, or
    may, the others are held and not gone."""
    return gauge.depth if gauge.consumers == 0 else None


class Readable(Protocol):
    """What a pull needs of a connector; a file has no more."""

    def read(self, request: ReadRequest) -> Reading:
        """Start a reading (`dlq.connectors.base.Connector.read`)."""


@dataclass(frozen=True)
class PullOptions:
    """How to pull. `max_seconds` bounds the time, `limit` the letters."""

    mode: Mode
    limit: int | None = None
    max_seconds: float | None = None
    force: bool = False
    include_empty: bool = False


@dataclass
class PullResult:
    """What a pull did. `partial`: letters that should have been taken were not; `error`: what ended it."""

    source: str
    pull_id: str
    mode: str
    snapshot: int | None = None
    captured: int = 0
    acknowledged: int = 0
    recaptured: int = 0
    left: int = 0
    gone: int = 0
    """Letters of the snapshot that were there no more when it was their turn."""
    lost: int = 0
    """Letters that are known to be lost, at most, and that nobody has dismissed."""
    losses: list[Loss] = field(default_factory=list)
    segments: int = 0
    seconds: float = 0.0
    partial: bool = False
    error: errors.DlqError | None = None
    notes: list[str] = field(default_factory=list)
    skipped: int = 0
    """Letters that were seen and could not be taken; the first of them are `left_letters`."""
    left_letters: list[str] = field(default_factory=list)


class PullInterrupted(KeyboardInterrupt):
    """A pull that had begun was interrupted; what it has done by then is in `result`."""

    def __init__(self, result: PullResult) -> None:
        super().__init__()
        self.result = result


def pull(
    store: Store,
    connector: Readable,
    source: Source,
    options: PullOptions,
    progress: Progress | None = None,
    awaits: Awaits | None = None,
    depth: _Depth | None = None,
) -> PullResult:
    """Capture `source`. A lost connection is tried again while that makes progress. `depth` tells what is
    left from what is gone meanwhile.

    What ends a pull after it has begun is in the result's `error`, with everything taken by then safe.
    Before, it is raised: BrokerError, HarmRefused, Busy, ArchiveError. An interruption after the beginning
    is a PullInterrupted.
    """
    started = time.monotonic()
    progress, awaits = progress or (lambda _tally, _total: None), awaits or (lambda _whom: None)
    awaits("archive")
    with store.lock(f"source-{source.name}"):
        remove_uncommitted(store, source.name)
        running = _Pull(store, connector, source, options, progress, awaits, depth)
        try:
            running.read_all()
        except (errors.BrokerError, errors.PoisonMessage, errors.ArchiveError) as error:
            if not running.begun:
                raise
            running.result.error, running.result.partial = error, True
        except KeyboardInterrupt as interrupt:
            if not running.begun:
                raise
            raise PullInterrupted(running.sum_up(started)) from interrupt
    return running.sum_up(started)


class _Pull:
    """The readings of one pull: one, or several where connections were lost."""

    def __init__(
        self,
        store: Store,
        connector: Readable,
        source: Source,
        options: PullOptions,
        progress: Progress,
        awaits: Awaits,
        depth: _Depth | None,
    ) -> None:
        self.result = PullResult(source.name, manifests.new_pull_id(), options.mode)
        self._store, self._connector, self._progress, self._awaits = store, connector, progress, awaits
        self._depth = depth
        seconds = options.max_seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._total = Tally()
        self._request = ReadRequest(
            source=source,
            mode=options.mode,
            pull_id=self.result.pull_id,
            limit=options.limit,
            resume=self._checkpoint(options.mode, source),
            force=options.force,
            include_empty=options.include_empty,
        )
        self._limit = options.limit
        self._last_number = 0
        self._before_poison = 0
        self._unlike = 0
        self._suspected = ""
        """What has ended two readings behind the same letter."""
        self.begun = False
        self._is_log = False
        """What is not shown of a log may be there: only a queue that is not there holds nothing."""
        self._resumes = False
        """Whether a copy, too, goes on behind what is captured."""
        self._was_lost = False
        """What was under way then may come again later, and nothing proves that it does not."""
        self._may_hold = False
        """A connection that the broker has not given up yet may hold letters, which no depth counts."""
        self._may_be_gone = 0
        """Letters that were not durable when the broker ended a consumer: what lies in a queue that was made
        again under its name are others, which nothing tells from those."""
        self._missing_ids: set[str] = set()
        """Letters that a lost connection has delivered, and that have not come again."""

    def read_all(self) -> None:
        """Read until the snapshot is taken, or two reconnections in a row bring nothing.

        A broker that was lost may be away for a while, which costs no letter a delivery. A letter that still
        poisons the connection when it is asked for alone ends it at once: each further attempt would count
        as a delivery of it. So does what ends a reading twice behind the same letter.
        """
        failures, lost_at, before = 0, -math.inf, ("", 0)
        while True:
            tally = Tally()
            try:
                self._read_once(tally)
                if not self._before_poison:
                    return
                lost = None
            except errors.Unreachable:
                if time.monotonic() > lost_at + patience.RESTART or self._is_late():
                    raise
                time.sleep(patience.RECONNECT)
                continue
            except (errors.ConnectionLost, errors.PoisonMessage) as error:
                lost_at = time.monotonic()
                if isinstance(error, errors.ConsumerEnded):
                    self._may_be_gone = self._may_be_gone or self._count_missing(self._total + tally)
                self._was_lost = self._was_lost or isinstance(error, errors.ConnectionLost)
                self._may_hold = self._may_hold or (
                    isinstance(error, errors.ConnectionLost) and not isinstance(error, errors.ConsumerEnded)
                )
                failures = 0 if self._count_passed(tally) else failures + 1
                lost, before = self._as_poison(error, tally, before), (str(error), tally.delivered)
                alone = (
                    isinstance(lost, errors.PoisonMessage)
                    and self._request.careful
                    and (self._request.mode == "copy" or not tally.delivered)
                )
                if failures > _RECONNECTS_WITHOUT_PROGRESS or self._is_late() or alone:
                    raise lost from error.__cause__
            finally:
                self._total += tally
            if lost is not None:
                self.result.notes.append(f"reconnected after: {lost}")
                time.sleep(patience.RECONNECT)
            self._request = self._next_request(lost, tally)

    def _count_passed(self, tally: Tally) -> int:
        """Return letters that the next reading does not give again."""
        return tally.captured if self._resumes else tally.settled

    def _count_missing(self, total: Tally) -> int:
        """Return letters of the snapshot that are not durable, and that no log has lost. A log may bring more
        than its snapshot, which is never settled."""
        is_counted = self._is_log and self.result.mode == "drain"
        durable = total.settled if is_counted else total.captured + total.recaptured
        return (self.result.snapshot or 0) - durable - total.gone

    def _as_poison(self, error: errors.DlqError, tally: Tally, before: tuple[str, int]) -> errors.DlqError:
        """Return the error, as a poison where it has come before behind the same letter."""
        if (tally.delivered or self._request.careful) and before == (str(error), tally.delivered):
            self._suspected = str(error)
        if isinstance(error, errors.ConnectionLost) and str(error) == self._suspected:
            return errors.PoisonMessage(
                f"{error}; it ends each reading at one letter, which stays with the rest"
            )
        return error

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _read_once(self, tally: Tally) -> None:
        self._awaits("broker")
        reading = self._connector.read(self._request)
        result, before = self.result, self._total
        expected = reading.snapshot or 0
        try:
            if not self.begun:
                self.begun = True
                result.snapshot = reading.snapshot
                result.notes += reading.notes
                self._write_topology(reading)
            told = str(reading.topology)
            self._is_log, self._resumes = reading.settles_at_once, reading.resumes
            self._awaits("archive")
            self._store.prove_room(_room_for(reading.snapshot))
            known = Deduplicator(
                self._store,
                result.source,
                reading.unique_ids,
                result.mode == manifests.BY_IMPORT,
                reading.marks_redelivered,
            )
            self._awaits("broker")
            number = self._last_number + 1
            attempt = Attempt(
                self._store, reading, self._request, known, tally, number, self._awaits, self._missing_ids
            )
            try:
                attempt.run(self._deadline, lambda now: self._progress(before + now, result.snapshot))
            except errors.ConnectionLost:
                if result.mode == "drain" and not reading.settles_at_once:
                    self._missing_ids |= attempt.list_unsettled()
                raise
            finally:
                self._last_number = attempt.last_number
                self._unlike += known.unlike
                if told != str(reading.topology):  # the letters have shown more of it
                    self._write_topology(reading)
            result.partial = result.partial or not reading.complete
        finally:
            if result.snapshot is not None:
                result.snapshot -= expected - (reading.snapshot or 0)
            reading.close()
            result.notes += [note for note in reading.notes if note not in result.notes]

    def _next_request(self, lost: Exception | None, tally: Tally) -> ReadRequest:
        """Make the next request. After a poisoned connection take exactly what came before the poison, then
        read carefully. A queue that gives its letters in another order then may poison that reading, too."""
        bounds = [n for n in (self._limit, self.result.snapshot) if n is not None]
        rest = max(0, min(bounds) - self._count_passed(self._total)) if bounds else None
        poisoned = isinstance(lost, errors.PoisonMessage)
        again = self._before_poison > 0
        before_poison = tally.delivered if poisoned and not (self._count_passed(tally) or again) else 0
        careful = (poisoned or again) and not before_poison
        self._before_poison = before_poison
        resume = self._checkpoint(self._request.mode, self._request.source)
        return replace(self._request, limit=before_poison or rest, careful=careful, resume=resume)

    def _checkpoint(self, mode: str, source: Source) -> dict[str, int]:
        """Return where the pulls of `source` in this mode have come to."""
        committed = manifests.list_committed(self._store, source.name)
        return manifests.furthest_checkpoint(one for one in committed if one.mode == mode)

    def _write_topology(self, reading: Reading) -> None:
        source = self._request.source
        document = {
            "format": FORMAT_VERSION,
            "source": source.name,
            "broker": source.broker,
            "reads": name_letters(source),
            **reading.topology,
        }
        name = f"topology/{self.result.pull_id}.json"
        self._store.put(name, topology.encode(document))

    def sum_up(self, started: float) -> PullResult:
        """Return the result with its numbers; `started` is of the monotonic clock."""
        result, total = self.result, self._total
        result.captured, result.recaptured = total.captured, total.recaptured
        result.acknowledged, result.segments = total.settled, total.segments
        taken = total.captured + total.recaptured
        result.skipped, result.left_letters = total.skipped, total.left
        result.notes += [f"gap: {gap}" for gap in total.gaps]
        if self._unlike:
            result.notes.append(_UNLIKE.format(self._unlike))
        rest = max(total.skipped, self._count_missing(total))
        result.left = max(total.skipped, self._there(rest, taken))
        result.gone = total.gone + rest - result.left
        if type(result.error) in _OF_THE_QUEUE:
            self._may_be_gone = self._may_be_gone or self._count_missing(total)
        is_unproven = self._may_be_gone > result.gone
        if is_unproven:
            result.notes.append(_ENDED.format(self._may_be_gone))
        open_losses = losses.open_ones(self._store, result.source)
        result.lost = losses.letters(open_losses)
        result.losses = open_losses
        wanted = min((n for n in (self._limit, result.snapshot) if n is not None), default=taken)
        kept = total.settled if result.mode == "drain" else taken
        is_open = bool(self._missing_ids) or (self._was_lost and kept < wanted)
        if self._missing_ids and result.error is None:
            result.notes.append(_NOT_AGAIN.format(len(self._missing_ids)))
        result.partial = result.partial or is_open or is_unproven or bool(total.skipped or open_losses)
        result.seconds = round(time.monotonic() - started, 3)
        return result

    def _there(self, rest: int, taken: int) -> int:
        """Return how many of the `rest` of a snapshot still lie there, as far as the broker tells. What a
        reading has given back may take a moment to be counted. Of a queue that is not there any more nothing
        is; a log that is not shown may be there."""
        depth = self._depth
        if depth is None or not rest:
            return rest
        mine = taken if self.result.mode == "copy" else 0
        there = 0
        with suppress(errors.BrokerError):
            for _ in patience.tries(patience.GIVEN_BACK, patience.FETCH):
                try:
                    told = depth()
                except errors.NotFound:
                    return rest if self._is_log else 0
                there = rest if told is None or self._may_hold else max(there, told - mine)
                if there >= rest:
                    break
            return min(rest, max(0, there))
        return rest


_UNLIKE = (
    "{:,} have ids of letters that the archive holds with other content, or by import: each is a letter of "
    "its own; look at both before you replay one"
)


_OF_THE_QUEUE = (errors.BrokerError, errors.NotFound)
"""How brokers that end more than the consumer say that a queue was deleted or purged: ActiveMQ's "Queue
deleted" and "Unmatched acknowledge", and AMQP 1.0's `amqp:resource-deleted`."""
_NOT_AGAIN = (
    "{:,} letters that a lost connection had delivered did not come again: another consumer has them, the "
    "broker took their acknowledgement and could not answer, or the queue was purged or deleted; if it was, "
    "what came afterwards are letters of a new queue of its name"
)
_ENDED = (
    "the broker ended the reading before {:,} messages had come: if the queue was deleted or purged, they "
    "are gone, and what came afterwards, or lies there now, are letters of a new queue of its name; nothing "
    "shows which"
)


def _room_for(letters: int | None) -> int:
    """Return bytes that the archive must have room for before a queue is asked for a letter: what is open at
    once, as far as the number of letters tells."""
    most = 2 * SEGMENT_BYTES
    return most if letters is None else min(most, max(_LEAST_ROOM, letters * _BYTES_OF_LETTER))
