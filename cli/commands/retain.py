"""`dlq retain`: keep the archive from growing for ever."""

from typing import Annotated

import typer

from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.core.values.units import human_bytes


def retain(
    ctx: typer.Context,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply/--dry-run", help="Remove them; by default it only prints what it would remove."
        ),
    ] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Also merge small segments.")] = False,
) -> int:
    """Remove old replayed letters and analyses; a dry run by default.

    It never removes letters with a replay that has begun and is not over (under way, given back unsent, in
    doubt or held), nor letters that their broker may still deliver (copied, or from a pull that is not
    settled). A plan alone keeps no letter: one whose letters were removed is refused. Verdicts and the
    ledger stay valid.

    Example: dlq retain --compact && dlq retain --compact --apply
    """
    from dlq.operations.housekeeping import retain as carry_out

    context: Context = ctx.obj
    done = carry_out(context.workspace, apply, compact)
    context.emit(done.document, lambda: _show(context, done.document))
    for problem in done.busy:
        context.complain(f"{problem}; its letters wait for the next time")
    return ExitCode.PARTLY if done.busy else ExitCode.DONE


def _show(context: Context, document: dict[str, int]) -> None:
    would = "" if document["applied"] else "would "
    lines = (
        f"{would}remove {document['removed']:,} letters, {would}keep {document['kept']:,}",
        f"{document['segments_before']:,} segments, {document['segments']:,} afterwards; "
        f"{human_bytes(max(0, document['bytes']))} less",
        f"{would}delete {document['clutter']:,} files of old analyses and facts",
    )
    context.console.print("\n".join(lines))
    if not document["applied"]:
        context.say("Nothing was changed; --apply does it.")
