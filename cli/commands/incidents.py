"""dlq incidents: letters that died in bursts, what to look at first on top."""

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dlq.cli.context import Context


def incidents(ctx: typer.Context) -> None:
    """List incidents: letters that died in one burst, for one reason.

    An incident may span queues. The first has the most letters waiting; an ongoing one counts ten times.
    Incidents whose failures are all resolved or snoozed come last (dlq failures).

    Example: dlq incidents -o json
    """
    from dlq.operations.reading.incidents import COLUMNS, list_incidents

    context: Context = ctx.obj
    found = list_incidents(context.workspace)
    if context.output == "json":
        context.emit({"incidents": [{name: row[name] for name in COLUMNS} for row in found]})
    elif context.output == "table":
        _draw(context, found)
    else:
        context.emit_rows(COLUMNS, ([row[name] for name in COLUMNS] for row in found))
    if not found:
        context.say("no incidents: no burst stands out of what is usual; dlq report shows all letters")


def _draw(context: "Context", found: list[dict[str, Any]]) -> None:
    from dlq.reports.formats.incidents_text import table
    from dlq.reports.incidents import next_step

    if found:
        context.console.print(table(found))
        step = next_step(found[0])
        context.say(f"next: {step['command']}")
