"""`dlq pull`: capture dead letters into the archive."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.cli.triage import show_died
from dlq.core.errors import UsageError
from dlq.core.values import units

if TYPE_CHECKING:
    from dlq.capture.pull import PullResult
    from dlq.operations.brokers.pulling import Pulled

_MODE_HELP = (
    "copy leaves the messages in the broker, drain removes them once they are durable (default: the source's "
    "mode, else copy)."
)
NoAnalyze = Annotated[bool, typer.Option("--no-analyze", help="Leave the analysis to dlq analyze.")]


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
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most N messages of each source.", min=1)
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this long, e.g. 5m.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Copy even where looking changes the queue.")
    ] = False,
    include_empty: Annotated[
        bool, typer.Option("--include-empty", help="ActiveMQ: archive text messages that really are empty.")
    ] = False,
    parallel: Annotated[
        int, typer.Option(metavar="N", help="Pull N sources at once; those of one queue take turns.", min=1)
    ] = 4,
    no_analyze: NoAnalyze = False,
) -> int:
    """Copy or drain dead messages into the archive.

    It takes at most as many messages as the queue holds at the start (snapshot). A drain acknowledges a
    message only after it is durable. A second pull after a crash adds nothing twice (recaptured). left
    counts messages that it did not take, and gone those that vanished meanwhile. It ends with an analysis;
    in an archive so large that Spark is needed, only of the new letters.

    Example: dlq pull orders --mode drain --max-time 5m
    """
    from dlq.operations.brokers.pulling import PullWanted, pull_sources

    context: Context = ctx.obj
    if mode not in (None, "copy", "drain"):
        raise UsageError(f"--mode must be copy or drain, not {mode!r}")
    seconds = None if max_time is None else units.seconds_to_last(max_time)
    wanted = PullWanted(
        sources or (), mode, limit, seconds, force, include_empty, parallel, analyze=not no_analyze
    )
    done = pull_sources(context.workspace, wanted)
    _show(context, done)
    if done.code == ExitCode.INTERRUPTED:
        context.complain("interrupted; what is archived stays, and the next pull goes on from there")
    return done.code


def _show(context: Context, done: "Pulled") -> None:
    from dlq.operations.brokers.pulling import COLUMNS, KEYS

    if context.output == "json":
        context.emit(done.document)
    elif context.output != "table":
        context.emit_rows(COLUMNS, [[row[name] for name in COLUMNS] for row in done.rows])
    elif done.died is not None:
        context.emit_rows(KEYS, [[one.source, *_cells(one.result)] for one in done.outcomes])
        show_died(context, done.died)
        known = done.died.causes is not None
        context.say("Next: dlq report" if known else "Next: dlq analyze, then dlq report")


def _cells(result: "PullResult | None") -> list[Any]:
    """Return the cells of a result; of a source that was not read all is left empty but a word."""
    from dlq.operations.brokers.pulling import KEYS

    if result is None:
        return ["not read", *[None] * (len(KEYS) - 2)]
    return [getattr(result, key) for key in KEYS[1:]]
