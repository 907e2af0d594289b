"""dlq query: the user's own SQL over the archive."""

import sys
from typing import Annotated

import typer

from dlq.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("query")(query)


def query(
    ctx: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL; - reads it from stdin.")
    ],
) -> None:
    """Ask the archive in SQL; it is read-only, and no file or network can be reached.

    Views: records, verdicts, incidents, bursts (of suppressed duplicates), transactions,
    client_log (of the latest analysis), replays (the ledger),
    audit (who did what to failures, plans and letters),
    letters (every column of record and verdict, replay_state and analysis),
    ls (the columns of dlq ls). What no analysis has judged yet has no cause there, and analysis is null.
    Times are UTC. Their columns: dlq query "describe letters"

    Example: dlq query "select cause, count(*) as letters from letters group by cause order by 2 desc"
    """
    from dlq.archive.short_ids import expanded
    from dlq.archive.user_sql import run, single_select
    from dlq.cli.views import open_views

    context: Context = ctx.obj
    checked = single_select(sys.stdin.read() if sql == "-" else sql)
    connection = open_views(context, with_plans="audit" in checked.lower())
    found = run(connection, expanded(connection, checked))
    context.emit_rows(found.columns, found.rows)
