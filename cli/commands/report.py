"""dlq report: what an analysis found."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context, write_line
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.reports.report import Part


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    ctx: typer.Context,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=completion.formats,
            help="terminal, json, markdown or html.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="F", help="Write to this file; its name may say the format."),
    ] = None,
    parents: Annotated[bool, typer.Option("--parents", help="Make the folders above --out, too.")] = False,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", metavar="EXPR", help="Exit 5 when this holds; may be repeated."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="ANALYSIS",
            autocompletion=completion.analyses,
            help="Say what changed since that analysis.",
        ),
    ] = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    mask: Annotated[
        bool, typer.Option("--mask", help="Mask personal data, by built-in rules and [\\[mask]].")
    ] = False,
) -> int:
    """Report the latest analysis: how many died, why, since when, and what to do.

    Letters that it has not seen are counted as no_verdict.

    With --where, --source, --since, --incident or --failure all of it is about those letters alone.

    --fail-on compares total, open, no_verdict, a cause, an advice, a replay state such as in_doubt,
    duplicates, fingerprints, new_failures, regressed, incidents, ongoing or still_queued (they went back, and
    lie in their dead-letter queues, too) with a number, or with a share of all letters that are not
    dismissed, and oldest, the age of the oldest letter that did not go back, with a
    duration (1h). Letters of snoozed failures (dlq failures) count for it only while they are in doubt.

    Example: dlq report --fail-on "unknown > 10%" --out report.md
    """
    from dlq.cli.views import events, replays
    from dlq.replay import still_queued
    from dlq.reports import masking, thresholds
    from dlq.reports import report as reports

    context: Context = ctx.obj
    bounds = thresholds.parse(fail_on or [])
    chosen = reports.checked_format(format_) if format_ else reports.format_of_file(out) if out else None
    if chosen is None and context.output == "csv":
        raise UsageError("a report is more than one table; for CSV: dlq ls -o csv, or dlq query SQL -o csv")
    masks = context.settings.mask if mask else None
    part = _part(context, selecting.Selection(where, source, since, incident, failure))
    ledger, with_letters = replays(context), chosen in reports.WITH_LETTERS
    said, queued = events(context), still_queued.queued(context.store, context.settings)
    document = reports.make(context.store, ledger, masks, compare, with_letters, part, said, queued)
    if document.get("withheld"):
        context.complain(masking.said(document["withheld"]))
    if bounds and document["analysis"] is None:
        raise UsageError("no analysis yet, and --fail-on rests on one: run dlq analyze")
    if out:
        reports.write(document, chosen or "terminal", out, mask, parents)
        context.say(f"report written to {out}")
    else:
        _print(context, document, chosen)
    passed = [line for bound in bounds if (line := bound.passed(document["alarming"]))]
    for line in passed:
        context.complain(f"--fail-on {line}")
    return ExitCode.THRESHOLD if passed else ExitCode.DONE


def _part(context: Context, selection: selecting.Selection) -> "Part | None":
    from dlq.reports.report import Part

    if selection.is_all:
        return None
    return Part(partial(selection.condition, context), selection.options(), selection.narrowed)


def _print(context: Context, document: dict[str, Any], format_: str | None) -> None:
    from dlq.reports import report as reports
    from dlq.reports import terminal

    if format_ is None:
        context.emit(document, lambda: terminal.render(context.console, document))
    elif format_ == "terminal":
        terminal.render(context.console, document)
    else:
        write_line(reports.FORMATS[format_](document).rstrip("\n"))
