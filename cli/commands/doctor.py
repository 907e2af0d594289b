"""`dlq doctor`: look at the sources without changing anything."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion, doctor_output
from dlq.cli.at_once import Stop, at_once
from dlq.cli.connecting import connect, warn_of_ledger, warn_of_overlaps
from dlq.cli.context import Context
from dlq.cli.doctor_output import Finding
from dlq.cli.exit import ExitCode, code_of
from dlq.cli.progress import Line, progress
from dlq.core.errors import DlqError

if TYPE_CHECKING:
    from dlq.connectors.base import Inspection
    from dlq.core.settings import Source

_COLUMNS = (
    "source", "version", "depth", "facts", "changes", "harm", "leaves_out", "warnings", "error", "oldest",
)  # fmt: skip
_AT_ONCE = 4


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to look at (default: all)."),
    ] = None,
) -> int:
    """Connect to the sources' brokers and say what is there, and what each pull mode would change.

    Ends with 3 where a pull, in the mode that the source is configured for, would be refused, or would leave
    out a queue of a pattern. Of one source it shows limits, rights and bindings, too (of several with -v),
    and where pulled letters wait the age of the oldest. Warns of a ledger that is gone, or on a server that
    may forget what was sent.

    Example: dlq doctor orders
    """
    context: Context = ctx.obj
    chosen = context.sources(sources or [])
    findings, errors = _look(context, chosen)
    for line in doctor_output.complaints(findings):
        context.complain(line)
    looked_at = len(chosen) + _look_at_own(context, chosen, errors)
    findings = _with_oldest(context, findings)
    shown = [finding.document for finding in findings]
    if context.output == "table":
        doctor_output.draw(context, findings)
    elif context.output == "json":
        context.emit({"sources": shown})
    elif context.output == "csv":
        context.emit_rows(_COLUMNS, [[each.get(name) for name in _COLUMNS] for each in shown])
    else:
        for each in shown:
            context.emit(each)
    if errors:
        return code_of(errors[0]) if len(errors) == looked_at else ExitCode.PARTLY
    return ExitCode.PARTLY if any(f.refused or f.left_out for f in findings) else ExitCode.DONE


def _look(context: Context, chosen: "Sequence[Source]") -> tuple[list[Finding], list[DlqError]]:
    """What is there of each source, several asked at once, and what went wrong."""
    lines = {source.name: Line(source.name, f"the broker {source.broker}", False) for source in chosen}

    def look(source: "Source", _stop: Stop) -> "Inspection":
        lines[source.name].begin()
        lines[source.name].news(lambda _elapsed: "looking")
        try:
            return _inspect(context, source)
        finally:
            lines[source.name].end()

    _ = context.settings  # read once, before threads want it
    with progress(context, list(lines.values())):
        ended = list(at_once(look, chosen, _AT_ONCE, _interrupt))
    findings: list[Finding] = []
    errors: list[DlqError] = []
    for source, future in ended:
        try:
            findings.append(Finding(source, future.result()))
        except DlqError as error:
            errors.append(error)
            findings.append(Finding(source, error=error))
    return findings, errors


def _interrupt() -> None:
    """Looking leaves nothing to be put in order."""
    raise KeyboardInterrupt


def _look_at_own(context: Context, chosen: "Sequence[Source]", errors: list[DlqError]) -> int:
    """Warn of what the archive holds by another name, and of a ledger that is gone, or on a server that may
    forget. Returns whether the ledger counts as looked at: the archive's own does only when it is gone."""
    from dlq.replay.ledger import warnings

    warn_of_ledger(context)
    try:
        warn_of_overlaps(context, chosen)
        for warning in warnings(context.settings.ledger, context.store):
            context.complain(warning)
    except DlqError as error:
        errors.append(error)
        context.complain(str(error))
        return 1
    return int(context.settings.ledger.url != "sqlite")


def _with_oldest(context: Context, findings: list[Finding]) -> list[Finding]:
    """The findings with the age of what waits in the archive; without, where archive or ledger cannot be
    read, which other lines tell."""
    from dlq.archive import manifests

    try:
        if next(manifests.every(context.store), None) is None:
            return findings
        from dlq.cli.views import open_views
        from dlq.reports.failures import oldest_waiting

        with open_views(context) as connection:
            known = oldest_waiting(connection)
    except DlqError:
        return findings
    return [replace(finding, oldest=known.get(finding.source.name)) for finding in findings]


def _inspect(context: Context, source: "Source") -> "Inspection":
    connector = connect(context, context.settings.brokers[source.broker])
    try:
        return connector.inspect(source)
    finally:
        connector.close()
