"""dlq dismiss: letters that need no replay are closed."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context

_what = partial(typer.Option, rich_help_panel="What is done")
_Reason = Annotated[str | None, _what("--reason", metavar="TEXT", help="Why they need no replay.")]


def dismiss(
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="These letters (8 or more digits of each id)."),
    ] = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    text: selecting.Text = None,
    reason: _Reason = None,
    lost: Annotated[
        list[str] | None,
        selecting.which(
            metavar="SOURCE",
            autocompletion=completion.sources,
            help="Instead of letters: the known losses of this source.",
        ),
    ] = None,
    undo: Annotated[bool, _what("--undo", help="Open them again.")] = False,
) -> None:
    """Close letters that need no replay.

    Plans leave them out; thresholds and "waiting" do not count them. The ledger records who did it, when and
    why, and dlq verify counts them as dismissed. Letters that were sent, or may have been, stay as they are.

    Example: dlq dismiss --where "cause = 'expired'" --reason "prices are sent anew each hour"
    """
    from dlq.operations import dismissing
    from dlq.operations.reading.selecting import Selection

    context: Context = ctx.obj
    if lost:
        _say_lost(
            context,
            dismissing.reopen_losses(context.workspace, lost)
            if undo
            else dismissing.dismiss_losses(context.workspace, lost, reason or ""),
        )
        return
    chosen = (ids or [], Selection(where, source, since, incident, failure, text))
    if undo:
        _say(context, dismissing.reopen_letters(context.workspace, *chosen))
    else:
        _say(context, dismissing.dismiss_letters(context.workspace, *chosen, reason or ""))


def _say_lost(context: Context, counts: Mapping[str, int]) -> None:
    verb, what = _words(counts)
    text = f"{counts[verb]:,} loss{'' if counts[verb] == 1 else 'es'} {what}"
    context.emit(counts, lambda: context.console.print(text))


def _say(context: Context, counts: Mapping[str, int]) -> None:
    verb, what = _words(counts)
    context.emit(counts, lambda: context.console.print(_letters(counts[verb], what)))
    if verb == "dismissed" and counts["known"]:
        context.say(f"{_letters(counts['known'], 'left alone')}: dismissed before, sent, or set aside")


def _words(counts: Mapping[str, int]) -> tuple[str, str]:
    return ("reopened", "open again") if "reopened" in counts else ("dismissed", "closed")


def _letters(count: int, what: str) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'} {what}"
