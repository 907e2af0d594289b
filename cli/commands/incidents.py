"""dlq incidents: letters that died in bursts, what to look at first on top."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dlq.cli.context import Context

_COLUMNS = ("incident_id", "start", "peak", "end", "size", "sources", "causes", "ongoing", "new")
_MORE = (
    "waiting",
    "services",
    "failures",
    "fingerprint",
    "exception_class",
    "exception_message",
    "first_record_id",
    "state",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("incidents")(incidents)


def incidents(ctx: typer.Context) -> None:
    """List incidents: letters that died in a burst, for the same kind of reason, whatever queue they lay in.

    First those of which most letters wait; what still goes on counts ten times. Last are those whose failures
    are all resolved or snoozed (dlq failures).

    Example: dlq incidents -o json
    """
    from dlq.archive import analyses
    from dlq.cli.views import events, open_views
    from dlq.core.clock import now
    from dlq.core.errors import UsageError
    from dlq.reports.failures import states
    from dlq.reports.incidents import gather

    context: Context = ctx.obj
    if analyses.latest(context.store) is None:
        raise UsageError("no analysis yet: run dlq analyze")
    connection = open_views(context)
    found = gather(connection, states=states(connection, events(context), now()))
    if context.output == "json":
        shown = [{name: row[name] for name in (*_COLUMNS, *_MORE)} for row in found]
        context.emit({"incidents": shown})
    elif context.output == "table":
        _draw(context, found)
    else:
        columns = (*_COLUMNS, *_MORE)
        context.emit_rows(columns, ([row[name] for name in columns] for row in found))
    if not found:
        context.say("no incidents: no burst stands out of what is usual; dlq report shows all letters")


def _draw(context: "Context", found: list[dict[str, Any]]) -> None:
    from dlq.reports.incidents import next_step
    from dlq.reports.incidents_text import table

    if found:
        context.console.print(table(found))
        step = next_step(found[0])
        context.say(f"next: {step['command']}")
