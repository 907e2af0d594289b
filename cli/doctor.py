"""`dlq doctor`: look at the sources without changing anything."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.connecting import connect, warn_of_ledger
from dlq.cli.context import Context
from dlq.cli.exit import ExitCode, code_of
from dlq.core.errors import DlqError

if TYPE_CHECKING:
    from dlq.connectors.base import Inspection
    from dlq.core.settings import Source

_COLUMNS = ("source", "version", "depth", "facts", "changes", "harm", "warnings", "error")


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

    Warns of a ledger that is gone, or on a server that may forget what was sent.

    Example: dlq doctor orders
    """
    context: Context = ctx.obj
    chosen = context.sources(sources or [])
    findings: list[dict[str, Any]] = []
    errors: list[DlqError] = []
    for source in chosen:
        try:
            findings.append({"source": source.name, **asdict(_inspect(context, source))})
        except DlqError as error:
            errors.append(error)
            context.complain(f"{source.name}: {error}")
            findings.append({"source": source.name, "error": str(error)})
    looked_at = len(chosen) + _look_at_ledger(context, errors)
    if context.output == "table":
        for finding in findings:
            _render(context, finding)
    elif context.output == "json":
        context.emit({"sources": findings})
    elif context.output == "csv":
        context.emit_rows(_COLUMNS, [[finding.get(name) for name in _COLUMNS] for finding in findings])
    else:
        for finding in findings:
            context.emit(finding)
    if not errors:
        return ExitCode.DONE
    return code_of(errors[0]) if len(errors) == looked_at else ExitCode.PARTLY


def _look_at_ledger(context: Context, errors: list[DlqError]) -> int:
    """Warn of a ledger that is gone, or on a server that may forget; returns whether it counts as looked at:
    the archive's own does only when it is gone."""
    from dlq.replay.ledger import warnings

    warn_of_ledger(context)
    try:
        for warning in warnings(context.settings.ledger, context.store):
            context.complain(warning)
    except DlqError as error:
        errors.append(error)
        context.complain(str(error))
        return 1
    return int(context.settings.ledger.url != "sqlite")


def _inspect(context: Context, source: "Source") -> "Inspection":

    connector = connect(context, context.settings.brokers[source.broker])
    try:
        return connector.inspect(source)
    finally:
        connector.close()


def _render(context: Context, finding: Mapping[str, Any]) -> None:
    from rich.table import Table

    from dlq.core.text import for_terminal

    context.console.print(f"\n{for_terminal(finding['source'])}", style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    facts = {"version": finding.get("version"), "messages": finding.get("depth"), **finding.get("facts", {})}
    facts |= {f"a {mode}": text for mode, text in finding.get("changes", {}).items()}
    facts |= {f"a {mode} is refused": text for mode, text in finding.get("harm", {}).items()}
    facts |= {"warning" if i == 0 else "": text for i, text in enumerate(finding.get("warnings", ()))}
    facts |= {"error": finding.get("error")}
    for name, value in facts.items():
        if value is not None:
            table.add_row(
                name,
                for_terminal(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)),
            )
    context.console.print(table)
