"""One pull: read a source, make its letters durable, acknowledge them, and say what happened."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from dlq.archive import manifests
from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.segments import remove_uncommitted
from dlq.archive.store import Store
from dlq.capture.attempt import Attempt, Progress, Tally
from dlq.capture.known import Known
from dlq.connectors.base import Connector, Mode, ReadRequest
from dlq.core.errors import ConnectionLost, PoisonMessage
from dlq.core.settings import Source

RECONNECTS_WITHOUT_PROGRESS = 2
_WAIT_BEFORE_RECONNECT = 1.0


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
    """What a pull did; `notes` and `left_letters` are for people, the rest is the outer interface."""

    source: str
    pull_id: str
    mode: str
    snapshot: int | None = None
    captured: int = 0
    acknowledged: int = 0
    recaptured: int = 0
    left: int = 0
    segments: int = 0
    seconds: float = 0.0
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    left_letters: list[str] = field(default_factory=list)


def new_pull_id() -> str:
    """Sorts by time; four random hex digits keep two pulls of one second apart."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(2).hex()}"


def pull(store: Store, connector: Connector, source: Source, options: PullOptions, progress: Progress | None = None) -> PullResult:
    """Capture `source`. A lost connection is tried again while that makes progress.

    Raises BrokerError, PoisonMessage (with what was taken safe in the archive), HarmRefused, Busy, ArchiveError.
    """
    result = PullResult(source.name, new_pull_id(), options.mode)
    started = time.monotonic()
    with store.lock(f"source-{source.name}"):
        remove_uncommitted(store, source.name)
        try:
            _read_all(store, connector, source, options, result, progress or (lambda _tally, _total: None))
        finally:
            result.seconds = round(time.monotonic() - started, 3)
    return result


def _read_all(store: Store, connector: Connector, source: Source, options: PullOptions, result: PullResult, progress: Progress) -> None:
    deadline = None if options.max_seconds is None else time.monotonic() + options.max_seconds
    request = ReadRequest(
        source=source,
        mode=options.mode,
        pull_id=result.pull_id,
        limit=options.limit,
        resume=checkpoint_of(store, source.name) if options.mode == "drain" else {},
        force=options.force,
        include_empty=options.include_empty,
    )
    total = Tally()
    failures = 0
    while True:
        tally = Tally()
        try:
            _read_once(store, connector, request, result, tally, deadline, lambda now, whole: progress(total + now, whole))
            total += tally
            break
        except (ConnectionLost, PoisonMessage) as error:
            total += tally
            failures = 0 if tally.settled else failures + 1
            if failures > RECONNECTS_WITHOUT_PROGRESS or _past(deadline):
                _report(result, total, options)
                result.partial = True
                raise
            result.notes.append(f"reconnected after: {error}")
            request = _next_request(store, request, error, tally, total, result.snapshot, options)
            time.sleep(_WAIT_BEFORE_RECONNECT)
    _report(result, total, options)


def _read_once(store: Store, connector: Connector, request: ReadRequest, result: PullResult, tally: Tally, deadline: float | None, progress: Progress) -> None:
    reading = connector.read(request)
    try:
        if result.snapshot is None:
            result.snapshot = reading.snapshot
            result.notes += reading.notes
            _write_topology(store, request, dict(reading.topology))
        known = Known(store, request.source.name, reading.unique_ids)
        attempt = Attempt(store, reading, request, known, tally, first_number=result.segments + 1)
        try:
            attempt.run(deadline, lambda now: progress(now, result.snapshot))
        finally:
            result.segments = attempt.last_number
        result.partial = result.partial or not reading.complete
    finally:
        reading.close()


def _next_request(store: Store, request: ReadRequest, error: Exception, tally: Tally, total: Tally, snapshot: int | None, options: PullOptions) -> ReadRequest:
    """After a poisoned connection first take exactly what came before the poison, then look again, one by one."""
    bounds = [n for n in (options.limit, snapshot) if n is not None]
    rest = min(bounds) - total.settled if bounds else None
    poisoned = isinstance(error, PoisonMessage)
    before_poison = tally.delivered if poisoned and not tally.settled and tally.delivered else None
    resume = checkpoint_of(store, request.source.name) if request.mode == "drain" else {}
    return replace(request, limit=before_poison or rest, careful=poisoned, resume=resume)


def _report(result: PullResult, total: Tally, options: PullOptions) -> None:
    result.captured, result.recaptured, result.acknowledged = total.captured, total.recaptured, total.settled
    taken = total.captured + total.recaptured
    result.left_letters = total.left
    result.left = max(len(total.left), (result.snapshot or 0) - taken)
    wanted = min(n for n in (options.limit, result.snapshot, taken) if n is not None)
    result.partial = result.partial or taken < wanted or bool(total.left)


def _past(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def checkpoint_of(store: Store, source: str) -> dict[str, int]:
    """Where the drains of `source` have come to, over all their manifests."""
    reached: dict[str, int] = {}
    for manifest in manifests.every(store, source):
        if manifest.mode == "drain":
            for place, offset in manifest.checkpoint.items():
                reached[place] = max(offset, reached.get(place, 0))
    return reached


def _write_topology(store: Store, request: ReadRequest, topology: dict[str, object]) -> None:
    import json

    document = {"format": FORMAT_VERSION, "source": request.source.name, "broker": request.source.broker, **topology}
    store.put(f"topology/{request.pull_id}.json", json.dumps(document, default=str, indent=1).encode())
