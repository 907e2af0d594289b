"""Letters captured from brokers into the archive, and what they died of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, cast

from dlq.archive.losses import in_words
from dlq.capture.attempt import Tally
from dlq.capture.pull import PullOptions, PullResult, proven_depth, pull
from dlq.connectors.base import Mode
from dlq.core.errors import DlqError, with_next_step
from dlq.core.settings import Source
from dlq.operations.brokers.connecting import connect, warn_of_overlaps
from dlq.operations.concurrency import Stop, do_at_once
from dlq.operations.outcome import ExitCode, code_of, tell_errors
from dlq.operations.progress import Line, tell_pulled
from dlq.operations.triage import Triage, classify_new
from dlq.operations.workspace import Listener, Workspace

_Take = Callable[[Source, Stop], PullResult]

KEYS = (
    "source", "pull_id", "mode", "snapshot", "captured", "acknowledged", "recaptured", "left", "gone", "lost",
    "segments", "seconds",
)  # fmt: skip
"""What a pull says of a source."""
COLUMNS = (*KEYS, "losses", "causes")
"""The same, with what is lost and what the new letters died of."""
_ENDING = "ending: what was read is archived first; Ctrl-C again ends at once"
_MOST_LEFT = 20


class PullWanted(NamedTuple):
    """Which sources to pull, and how; no sources: all."""

    sources: Sequence[str] = ()
    mode: str | None = None
    """copy or drain; None: as each source says."""
    limit: int | None = None
    max_seconds: float | None = None
    force: bool = False
    include_empty: bool = False
    parallel: int = 4
    analyze: bool = True


class Outcome(NamedTuple):
    """What came of one source; neither result nor error where it was interrupted before it began."""

    source: str
    result: PullResult | None
    error: DlqError | None
    interrupted: bool


@dataclass(frozen=True)
class Pulled:
    """What came of all sources, and what their new letters died of; None: no source was read."""

    outcomes: Sequence[Outcome]
    died: Triage | None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """COLUMNS of each source that was read."""
        causes = self.died.causes if self.died else None
        return [
            {
                **{key: getattr(result, key) for key in KEYS},
                "losses": [loss.as_json() for loss in result.losses],
                "causes": causes and causes[result.pull_id],
            }
            for result in self._results
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The rows, and what ended the pull of which source."""
        errors = {one.source: one.error for one in self.outcomes if one.error is not None}
        return {"sources": self.rows, "errors": tell_errors("source", errors)}

    @property
    def code(self) -> ExitCode:
        """Of interruption, of the one error where all failed, else whether all was done."""
        if any(one.interrupted for one in self.outcomes):
            return ExitCode.INTERRUPTED
        if errors := [one.error for one in self.outcomes if one.error is not None]:
            return code_of(errors[0]) if len(errors) == len(self.outcomes) else ExitCode.PARTLY
        if any(result.partial for result in self._results):
            return ExitCode.PARTLY
        return self.died.code if self.died else ExitCode.DONE

    @property
    def _results(self) -> list[PullResult]:
        return [one.result for one in self.outcomes if one.result is not None]


def pull_sources(workspace: Workspace, wanted: PullWanted) -> Pulled:
    """Capture what lies in the sources, up to what is there at the start, and classify the new letters.
    Raises UsageError for an unknown source; what goes wrong with one is in its outcome, and the listener
    hears it."""
    chosen = workspace.sources(wanted.sources)
    lines = {source.name: Line(source.name, f"the broker {source.broker}", False) for source in chosen}

    def take(source: Source, stop: Stop) -> PullResult:
        mode = cast(Mode, wanted.mode or source.mode)
        options = PullOptions(mode, wanted.limit, wanted.max_seconds, wanted.force, wanted.include_empty)
        lines[source.name].begin()
        try:
            return pull_one(workspace, source, options, lines[source.name], stop)
        finally:
            lines[source.name].end()

    warn_of_overlaps(workspace, chosen)  # opens the archive, too, before threads want it
    with workspace.listener.follow(list(lines.values())):
        ended = list(take_all(workspace, take, chosen, wanted.parallel))
    outcomes = [Outcome(source.name, *_outcome(future)) for source, future in ended]
    results = [one.result for one in outcomes if one.result is not None]
    say_notes(workspace.listener, results)
    for one in outcomes:
        _tell_problems(workspace.listener, one)
    died = (
        classify_new(workspace, [result.pull_id for result in results], wanted.analyze) if results else None
    )
    return Pulled(outcomes, died)


def take_all(
    workspace: Workspace, take: _Take, sources: Sequence[Source], parallel: int, seconds: float | None = None
) -> "Iterator[tuple[Source, Future[PullResult]]]":
    """Do `take` of every source, so many at once (`do_at_once`); those of one queue take turns."""
    turns = {_place(source): Lock() for source in sources}

    def take_turn(source: Source, stop: Stop) -> PullResult:
        with turns[_place(source)]:
            if stop():
                raise KeyboardInterrupt
            return take(source, stop)

    return do_at_once(take_turn, sources, parallel, partial(workspace.listener.say, _ENDING), seconds)


def _place(source: Source) -> tuple[str, str]:
    """Return the queue whose sources take turns: a copy holds its letters, another reading would see none."""
    return source.broker, source.queue or source.topic or f"{source.name} alone"


def pull_one(
    workspace: Workspace, source: Source, options: PullOptions, line: Line, stop: Stop
) -> PullResult:
    """Capture one source, and tell `line` how far it is. Raises as `pull`, and KeyboardInterrupt once `stop`
    says so."""

    def go_on(tally: Tally, total: int | None) -> None:
        tell_pulled(line, tally, total)
        if stop():
            raise KeyboardInterrupt

    awaited = {"broker": f"the broker {source.broker}", "archive": f"the archive {workspace.store.location}"}
    line.wait_for(awaited["broker"])
    with closing(connect(workspace, workspace.settings.brokers[source.broker])) as connector:
        if options.mode == "drain":
            _say_what_is_taken(workspace.listener, connector.members(source), source)
        return pull(
            workspace.store,
            connector,
            source,
            options,
            go_on,
            lambda whom: line.wait_for(awaited[whom]),
            lambda: proven_depth(connector.gauge(source)),
        )


def _say_what_is_taken(listener: Listener, members: Mapping[str, int | None], source: Source) -> None:
    """Say what is taken before a pattern is drained: another queue may have come to match it."""
    if members:
        named = [
            f"{name} ({'?' if depth is None else f'{depth:,}'})"
            for name, depth in islice(members.items(), _MOST_LEFT)
        ]
        more = f" and {len(members) - len(named)} more" if len(members) > len(named) else ""
        listener.say(f"{source.name}: {source.queue} takes the letters of {', '.join(named)}{more}")


def _outcome(future: "Future[PullResult]") -> tuple[PullResult | None, DlqError | None, bool]:
    """Return what a pull did, what ended it, and whether it was interrupted."""
    if future.cancelled():
        return None, None, True
    error = future.exception()
    if error is None:
        return future.result(), future.result().error, False
    if isinstance(error, DlqError):
        return None, error, False
    if isinstance(error, KeyboardInterrupt):
        return getattr(error, "result", None), None, True
    raise error


def say_notes(listener: Listener, results: Sequence[PullResult]) -> None:
    """Say each note once, with the sources that it is about."""
    names: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            names.setdefault(note, []).append(result.source)
    for note, sources in names.items():
        listener.say(f"{', '.join(sources)}: {note}")


def _tell_problems(listener: Listener, one: Outcome) -> None:
    result, name = one.result, one.source
    if result is None:
        if one.error is not None:
            listener.complain(f"{name}: {with_next_step(one.error).removeprefix(f'source {name}: ')}")
        return
    for letter in result.left_letters[:_MOST_LEFT]:
        listener.complain(f"{name}: left in the queue: {letter}")
    if result.error is not None:
        listener.complain(f"{name}: {with_next_step(result.error)}")
    if result.partial and result.snapshot is not None:
        taken = result.captured + result.recaptured
        gone = f", {result.gone} gone meanwhile" if result.gone else ""
        listener.complain(f"{name}: {taken} of {result.snapshot} taken, {result.left} left{gone}")
    if result.losses:
        listener.complain(f"{name}: {in_words(result.losses)}")
