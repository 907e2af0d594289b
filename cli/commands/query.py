"""dlq query: the user's own SQL over the archive."""

import sys
from typing import Annotated

import typer

from dlq.cli.context import Context
from dlq.cli.memory import OF_SQL, bound_memory


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
    ls (the columns of dlq ls). Before an analysis, cause and analysis are null there.
    Times are UTC. Their columns: dlq query "describe letters"

    Example: dlq query "select cause, count(*) as letters from letters group by cause order by 2 desc"
    """
    from dlq.operations.letters import run_query

    context: Context = ctx.obj
    bound_memory(OF_SQL)
    found = run_query(context.desk, sys.stdin.read() if sql == "-" else sql)
    context.emit_rows(found.columns, found.rows)
