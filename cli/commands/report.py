"""dlq report: what an analysis found."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion, selecting
from dlq.cli.context import Context, write_line
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.reports.thresholds import Threshold

_output, _checks = (partial(typer.Option, rich_help_panel=panel) for panel in ("Output", "Checks"))
_Format = Annotated[
    str | None,
    _output(
        "--format",
        metavar="FORMAT",
        autocompletion=completion.formats,
        help="terminal, json, markdown or html.",
    ),
]
_Out = Annotated[
    str | None,
    _output("--out", metavar="FILE", help="Write to this file, or to -; its name may choose the format."),
]
_Parents = Annotated[bool, _output("--parents", help="Also make the folders above --out.")]
_FailOn = Annotated[
    list[str] | None,
    _checks("--fail-on", metavar="EXPR", help="Exit with 5 when this holds; may be repeated."),
]
_Compare = Annotated[
    str | None,
    _checks(
        "--compare",
        metavar="ANALYSIS",
        autocompletion=completion.analyses,
        help="Show changes since that analysis.",
    ),
]
_Masked = Annotated[bool, _output("--mask", help="Show structure, and only content that \\[mask] lists.")]


def report(
    ctx: typer.Context,
    format_: _Format = None,
    out: _Out = None,
    parents: _Parents = False,
    fail_on: _FailOn = None,
    compare: _Compare = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    text: selecting.Text = None,
    mask: _Masked = False,
) -> int:
    """Report how many died, why, since when, and what to do.

    It shows the latest analysis. Letters that are newer count as no_verdict.

    --fail-on compares total, open, no_verdict, a cause, an advice, a replay state such as in_doubt,
    duplicates, fingerprints, new_failures, regressed, incidents, ongoing or still_queued (sent, and still in
    the queue) with a number, or with a share of all letters that are not dismissed. It compares oldest, the
    age of the oldest letter not sent back, with a duration (1h). Snoozed failures count only while in doubt.

    Example: dlq report --fail-on "unknown > 10%" --out report.md
    """
    from dlq.operations.reading.reporting import ReportWanted, make_report
    from dlq.operations.reading.selecting import Selection
    from dlq.reports import report as reports
    from dlq.reports import thresholds

    context: Context = ctx.obj
    out = None if out == "-" else out
    bounds = thresholds.parse(fail_on or [])
    chosen = reports.checked_format(format_) if format_ else reports.format_of_file(out) if out else None
    if chosen is None and context.output == "csv":
        raise UsageError(
            "a report is not one table, so it has no CSV; use dlq ls -o csv, or dlq query SQL -o csv"
        )
    part = Selection(where, source, since, incident, failure, text)
    wanted = ReportWanted(part, compare, mask, chosen in reports.WITH_LETTERS)
    document = make_report(context.workspace, wanted)
    if bounds and document["analysis"] is None:
        raise UsageError("--fail-on needs an analysis, and there is none: run dlq analyze")
    if not out:
        _print(context, document, chosen)
    else:
        reports.write(document, chosen or "terminal", out, mask, parents)
        context.say(f"report written to {out}")
    return _check(context, document, bounds)


def _check(context: Context, document: Mapping[str, Any], bounds: "Sequence[Threshold]") -> ExitCode:
    passed = [line for bound in bounds if (line := bound.describe_passed(document["alarming"]))]
    for line in passed:
        context.complain(f"--fail-on {line}")
    return ExitCode.THRESHOLD if passed else ExitCode.DONE


def _print(context: Context, document: dict[str, Any], format_: str | None) -> None:
    from dlq.reports import report as reports
    from dlq.reports.formats import terminal

    if format_ is None:
        context.emit(document, lambda: terminal.render(context.console, document))
    elif format_ == "terminal":
        terminal.render(context.console, document)
    else:
        write_line(reports.FORMATS[format_](document).rstrip("\n"))
