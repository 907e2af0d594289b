"""`dlq pull`: capture dead letters into the archive."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dlq.cli import completion
from dlq.cli.at_once import Stop, at_once
from dlq.cli.connecting import connect, warn_of_overlaps
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, code_of
from dlq.cli.progress import Line, progress, pulled
from dlq.core import units
from dlq.core.errors import DlqError, UsageError

if TYPE_CHECKING:
    from dlq.capture.attempt import Tally
    from dlq.capture.pull import PullOptions, PullResult
    from dlq.connectors.base import Mode
    from dlq.core.settings import Source

    Take = Callable[[Source, Stop], PullResult]

_MODE_HELP = (
    "copy leaves the messages where they are, drain removes them once they are durable "
    "(default: the source's mode, else copy)."
)
KEYS = (
    "source", "pull_id", "mode", "snapshot", "captured", "acknowledged", "recaptured", "left", "gone", "lost",
    "segments", "seconds",
)  # fmt: skip
"""What a pull says of a source with -o json."""
NoAnalyze = Annotated[bool, typer.Option("--no-analyze", help="Judge nothing at the end: dlq analyze does.")]
ENDING = "ending: what was read is archived first; Ctrl-C again ends at once"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(pull)


def pull(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to pull (default: all)."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option("--mode", metavar="copy|drain", autocompletion=completion.modes, help=_MODE_HELP),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many messages of each source.", min=1)] = None,
    max_time: Annotated[str | None, typer.Option(help="Stop after this long, e.g. 5m.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Copy even where looking changes the queue.")
    ] = False,
    include_empty: Annotated[
        bool, typer.Option("--include-empty", help="ActiveMQ: archive text messages that really are empty.")
    ] = False,
    parallel: Annotated[
        int, typer.Option(help="So many sources at once; those of one queue take turns.", min=1)
    ] = 4,
    no_analyze: NoAnalyze = False,
) -> int:
    """Capture dead letters into the archive, up to the number that is there at the start.

    A drain acknowledges a message only after it is durable on disk. A second pull after a crash adds
    nothing twice. It ends with an analysis, so that every letter has its verdict at once; where the archive
    holds so many letters that Spark is needed, with what each of the new ones says alone.

    Example: dlq pull orders --mode drain --max-time 5m
    """
    from dlq.capture.pull import PullOptions

    context: Context = ctx.obj
    if mode not in (None, "copy", "drain"):
        raise UsageError(f"--mode is copy or drain, not {mode!r}")
    seconds = None if max_time is None else units.seconds(max_time)
    chosen = context.sources(sources or [])
    lines = {source.name: Line(source.name, f"the broker {source.broker}", False) for source in chosen}

    def take(source: "Source", stop: Stop) -> "PullResult":
        line = lines[source.name]
        options = PullOptions(cast("Mode", mode or source.mode), limit, seconds, force, include_empty)
        line.begin()
        try:
            return _pull_one(context, source, options, line, stop)
        finally:
            line.end()

    ending = partial(context.say, ENDING)
    warn_of_overlaps(context, chosen)  # opens the archive, too, before threads want it
    with progress(context, list(lines.values())):
        ended = list(at_once(in_turns(take, chosen), chosen, parallel, ending))
    return _tell(context, ended, not no_analyze)


def in_turns(take: "Take", sources: "Sequence[Source]") -> "Take":
    """`take`, for several threads: sources of one queue wait for each other."""
    turns = {_place(source): Lock() for source in sources}

    def turn(source: "Source", stop: Stop) -> "PullResult":
        with turns[_place(source)]:
            if stop():
                raise KeyboardInterrupt
            return take(source, stop)

    return turn


def _place(source: "Source") -> tuple[str, str]:
    """Sources of one queue take turns: a copy holds its letters, and another reading would see none."""
    return source.broker, source.queue or source.topic or f"{source.name} alone"


def _pull_one(
    context: Context, source: "Source", options: "PullOptions", line: Line, stop: Stop
) -> "PullResult":
    from dlq.capture.pull import proven_depth
    from dlq.capture.pull import pull as capture

    def go_on(tally: "Tally", total: int | None) -> None:
        pulled(line, tally, total)
        if stop():
            raise KeyboardInterrupt

    awaited = {"broker": f"the broker {source.broker}", "archive": f"the archive {context.store.location}"}
    line.wait_for(awaited["broker"])
    connector = connect(context, context.settings.brokers[source.broker])
    try:
        return capture(
            context.store,
            connector,
            source,
            options,
            go_on,
            lambda whom: line.wait_for(awaited[whom]),
            lambda: proven_depth(connector.gauge(source)),
        )
    finally:
        connector.close()


def _tell(context: Context, ended: "Sequence[tuple[Source, Future[PullResult]]]", analyze: bool) -> int:
    """What came of each source, and the exit code."""
    outcomes = [(source, *_outcome(future)) for source, future in ended]
    _say_notes(context, [result for _, result, *_ in outcomes if result is not None])
    for source, result, error, _ in outcomes:
        if result is not None:
            _report(context, result)
        elif error is not None:
            context.complain(f"{source.name}: {str(error).removeprefix(f'source {source.name}: ')}")
    judged = _show(context, [(source.name, result) for source, result, *_ in outcomes], analyze)
    if any(interrupted for *_, interrupted in outcomes):
        context.complain("interrupted; what is archived stays, and the next pull goes on from there")
        return ExitCode.INTERRUPTED
    if errors := [error for _, _, error, _ in outcomes if error is not None]:
        return code_of(errors[0]) if len(errors) == len(ended) else ExitCode.PARTLY
    return ExitCode.PARTLY if any(result and result.partial for _, result, *_ in outcomes) else judged


def _outcome(future: "Future[PullResult]") -> "tuple[PullResult | None, DlqError | None, bool]":
    """What a pull did, what ended it, and whether it was interrupted."""
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


def _say_notes(context: Context, results: "Sequence[PullResult]") -> None:
    """Each note once, with the sources that it is about."""
    names: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            names.setdefault(note, []).append(result.source)
    for note, sources in names.items():
        context.say(f"{', '.join(sources)}: {note}")


def _report(context: Context, result: "PullResult") -> None:
    from dlq.archive.losses import in_words

    name = result.source
    for letter in result.left_letters[:20]:
        context.complain(f"{name}: left in the queue: {letter}")
    if result.error is not None:
        context.complain(f"{name}: {result.error}")
    if result.partial and result.snapshot is not None:
        taken = result.captured + result.recaptured
        gone = f", {result.gone} gone meanwhile" if result.gone else ""
        context.complain(f"{name}: {taken} of {result.snapshot} taken, {result.left} left{gone}")
    if result.losses:
        context.complain(f"{name}: {in_words(result.losses)}")


def _show(context: Context, ended: "Sequence[tuple[str, PullResult | None]]", analyze: bool) -> ExitCode:
    """What came of each source; the exit code of the analysis at the end."""
    from dlq.cli import died

    results = [
        {**asdict(result), "losses": [loss.as_json() for loss in result.losses]}
        for _, result in ended
        if result is not None
    ]
    if not results:
        return ExitCode.DONE
    new = died.of(context, [result["pull_id"] for result in results], analyze)
    if context.output == "table":
        rows = [[name, *_cells(result)] for name, result in ended]
        context.emit_rows(KEYS, rows)
        died.show(context, new)
        context.say("Next: dlq report" if new.causes is not None else "Next: dlq analyze, then dlq report")
        return new.code
    columns = (*KEYS, "losses", "causes")
    rows = [
        [*(result[key] for key in columns[:-1]), new.causes and new.causes[result["pull_id"]]]
        for result in results
    ]
    if context.output == "json":
        context.emit({"sources": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        context.emit_rows(columns, rows)
    return new.code


def _cells(result: "PullResult | None") -> list[Any]:
    """Of a source that was not read all is left empty but a word."""
    if result is None:
        return ["not read", *[None] * (len(KEYS) - 2)]
    return [getattr(result, key) for key in KEYS[1:]]
