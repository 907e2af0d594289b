"""`dlq coverage`: what would be lost, before it dies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, code_of

if TYPE_CHECKING:
    from dlq.operations.brokers.coverage import Covered
    from dlq.reports.thresholds import Threshold

_MOST_FIXES = 20


def coverage(
    ctx: typer.Context,
    broker: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.brokers, help="The broker to look at (default: all)."),
    ] = None,
    death: Annotated[
        list[str] | None,
        typer.Option("--death", metavar="DEATH", help="Only this kind of death; may be repeated."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", metavar="EXPR", help="Exit with 5 when this holds; may be repeated."),
    ] = None,
    svg: Annotated[
        str | None, typer.Option("--svg", metavar="FILE", help="Also draw where dead letters go, as SVG.")
    ] = None,
) -> int:
    """Show where each kind of death leads, or that it is lost.

    It follows reject, expiry, overflow, delivery limit, discard, unroutable and give-up through the
    definitions of each queue, topic and group. It reads only those, and changes nothing. Where they do not
    say enough, the verdict is unknown. --fail-on compares lost, unknown, kept or total with a number.

    Example: dlq coverage shop --fail-on "lost > 0"
    """
    from dlq.operations.brokers.coverage import COUNTS, cover
    from dlq.reports import thresholds
    from dlq.reports.formats import coverage_svg, files

    context: Context = ctx.obj
    bounds = thresholds.parse(fail_on or [], COUNTS)
    found = cover(context.workspace, broker, death or [])
    if svg:
        files.write_text(svg, coverage_svg.draw(found.rows, found.document["counts"]), parents=False)
    _show(context, found)
    return _code(context, found, bounds)


def _show(context: Context, found: "Covered") -> None:
    from dlq.operations.brokers.coverage import COLUMNS

    if context.output == "json":
        context.emit(found.document)
        return
    shown = COLUMNS[:-1] if context.output == "table" else COLUMNS
    context.emit_rows(shown, [[_cell(context, row[name]) for name in shown] for row in found.rows])
    if context.output == "table":
        _say_fixes(context, list(dict.fromkeys(str(row["fix"]) for row in found.rows if row["fix"])))
    for name, counts in found.document["brokers"].items():
        context.say(f"{name}: {counts['lost']} lost, {counts['unknown']} unknown, {counts['kept']} kept")


def _cell(context: Context, value: object) -> object:
    return ", ".join(value) if isinstance(value, list) and context.output in ("table", "csv") else value


def _say_fixes(context: Context, fixes: Sequence[str]) -> None:
    """Say the fixes below the table, whose cells would cut them."""
    for fix in fixes[:_MOST_FIXES]:
        context.say(f"to keep it: {fix}")
    if len(fixes) > _MOST_FIXES:
        context.say(f"and {len(fixes) - _MOST_FIXES} more (-o json shows all)")


def _code(context: Context, found: "Covered", bounds: "Sequence[Threshold]") -> ExitCode:
    if found.errors and not found.document["brokers"]:
        return code_of(next(iter(found.errors.values())))
    passed = [line for bound in bounds if (line := bound.describe_passed(found.document["counts"]))]
    for line in passed:
        context.complain(f"--fail-on {line}")
    if passed:
        return ExitCode.THRESHOLD
    return ExitCode.PARTLY if found.errors else ExitCode.DONE
