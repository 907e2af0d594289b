"""`dlq pull`: capture dead letters into the archive."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dlq.cli import completion
from dlq.cli.connecting import connect
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, code_of
from dlq.cli.progress import pull_progress
from dlq.core import units
from dlq.core.errors import DlqError, UsageError

if TYPE_CHECKING:
    from dlq.capture.pull import PullResult
    from dlq.connectors.base import Mode
    from dlq.core.settings import Source

_MODE_HELP = (
    "copy leaves the messages where they are, drain removes them once they are durable "
    "(default: the source's mode, else copy)."
)
KEYS = (
    "source", "pull_id", "mode", "snapshot", "captured", "acknowledged", "recaptured", "left", "segments",
    "seconds",
)  # fmt: skip
"""What a pull says of a source with -o json."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(pull)


def pull(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to pull (default: all)."),
    ] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="copy|drain", help=_MODE_HELP)] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many messages of each source.", min=1)] = None,
    max_time: Annotated[str | None, typer.Option(help="Stop after this long, e.g. 5m.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Copy even where looking changes the queue.")
    ] = False,
    include_empty: Annotated[
        bool, typer.Option("--include-empty", help="ActiveMQ: archive text messages that really are empty.")
    ] = False,
) -> int:
    """Capture dead letters into the archive, up to the number that is there at the start.

    A drain acknowledges a message only after it is durable on disk. A second pull after a crash adds
    nothing twice. It ends with what the new letters died of, each judged alone (up to 20,000 of them).

    Example: dlq pull orders --mode drain --max-time 5m
    """
    context: Context = ctx.obj
    if mode not in (None, "copy", "drain"):
        raise UsageError(f"--mode is copy or drain, not {mode!r}")
    seconds = None if max_time is None else units.seconds(max_time)
    chosen = context.sources(sources or [])
    flags = {"limit": limit, "max_seconds": seconds, "force": force, "include_empty": include_empty}
    results: list[PullResult] = []
    errors: list[DlqError] = []
    for source in chosen:
        try:
            results.append(pull_one(context, source, cast("Mode", mode or source.mode), **flags))
        except DlqError as error:
            errors.append(error)
            context.complain(f"{source.name}: {error}")
        else:
            errors += [error for error in [results[-1].error] if error is not None]
    if results:
        _show(context, [asdict(result) for result in results])
    if errors:
        return code_of(errors[0]) if len(errors) == len(chosen) else ExitCode.PARTLY
    return ExitCode.PARTLY if any(result.partial for result in results) else ExitCode.DONE


def pull_one(context: Context, source: "Source", mode: "Mode", **options: Any) -> "PullResult":
    """Pull one source and say on stderr what a person should know of it."""
    from dlq.capture.pull import PullOptions
    from dlq.capture.pull import pull as capture

    connector = connect(context, context.settings.brokers[source.broker])
    try:
        with pull_progress(context, source.name) as progress:
            result = capture(context.store, connector, source, PullOptions(mode=mode, **options), progress)
    finally:
        connector.close()
    _report(context, result)
    return result


def _report(context: Context, result: "PullResult") -> None:
    name = result.source
    for note in result.notes:
        context.say(f"{name}: {note}")
    for letter in result.left_letters[:20]:
        context.complain(f"{name}: left in the queue: {letter}")
    if result.error is not None:
        context.complain(f"{name}: {result.error}")
    if result.partial and result.snapshot is not None:
        taken = result.captured + result.recaptured
        context.complain(f"{name}: {taken} of {result.snapshot} taken, {result.left} left")


def _show(context: Context, results: list[dict[str, Any]]) -> None:
    from dlq.cli import died

    new = died.of(context, [result["pull_id"] for result in results])
    if context.output == "table":
        context.emit_rows(KEYS, [[result[key] for key in KEYS] for result in results])
        died.show(context, new)
        context.say("Next: dlq analyze, then dlq report")
        return
    columns = (*KEYS, "causes")
    rows = [
        [*(result[key] for key in KEYS), new.causes and new.causes[result["pull_id"]]] for result in results
    ]
    if context.output == "json":
        context.emit({"sources": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        context.emit_rows(columns, rows)
