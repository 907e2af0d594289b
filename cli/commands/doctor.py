"""`dlq doctor`: look at the sources without changing anything."""

from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion, doctor_output
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, code_of

if TYPE_CHECKING:
    from dlq.operations.brokers.sources import Finding

_COLUMNS = (
    "source", "version", "depth", "facts", "changes", "harm", "leaves_out", "warnings", "error",
    "oldest", "lost",
)  # fmt: skip


def doctor(
    ctx: typer.Context,
    sources: Annotated[
        list[str] | None,
        typer.Argument(autocompletion=completion.sources, help="Sources to look at (default: all)."),
    ] = None,
) -> int:
    """Check the brokers, and what each pull mode would change there.

    It exits with 3 where a pull in the source's configured mode would be refused, or would leave out a queue
    of a pattern. For one source (with -v for several) it also shows limits, rights and bindings. It reports
    the age of the oldest letter that waits, losses until you dismiss them, and a ledger that is gone or that
    may forget what was sent.

    Example: dlq doctor orders
    """
    from dlq.operations.brokers.sources import add_oldest, inspect_own, inspect_sources

    context: Context = ctx.obj
    chosen = context.workspace.sources(sources or [])
    findings = inspect_sources(context.workspace, chosen)
    for line in doctor_output.list_problems(findings):
        context.complain(line)
    findings, own = inspect_own(context.workspace, findings)
    findings = add_oldest(context.workspace, findings)
    _show(context, findings)
    errors = [error for error in (*(finding.error for finding in findings), own) if error is not None]
    if errors:
        # The ledger counts as looked at where it is on a server; the archive's own does only when it is gone.
        looked_at = len(chosen) + (own is not None or context.settings.ledger.url != "sqlite")
        return code_of(errors[0]) if len(errors) == looked_at else ExitCode.PARTLY
    return ExitCode.PARTLY if any(f.refused or f.left_out for f in findings) else ExitCode.DONE


def _show(context: Context, findings: "list[Finding]") -> None:
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
