"""dlq query: the user's own SQL over the archive."""

import sys
from typing import Annotated

import typer

from dlq.cli.context import Context
from dlq.cli.memory import OF_SQL, bound_memory
from dlq.core.errors import UsageError


def query(
    ctx: typer.Context,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL; - reads it from stdin.")
    ],
) -> None:
    """Query the archive in SQL, read-only.

    No file and no network can be reached. Times are UTC. Views: records, verdicts, incidents, bursts (of
    suppressed duplicates), transactions, client_log (of the latest analysis), replays (the ledger), audit
    (who did what to failures, plans and letters), ls (the columns of dlq ls), letters (every column of
    record and verdict, replay_state and analysis). A letter that is not classified yet has no cause there,
    and its analysis is null. dlq query "describe letters" lists the columns.

    Example: dlq query "select cause, count(*) as letters from letters group by cause order by 2 desc"
    """
    from dlq.operations.reading.letters import run_query

    context: Context = ctx.obj
    bound_memory(OF_SQL)
    found = run_query(context.workspace, _read() if sql == "-" else sql)
    context.emit_rows(found.columns, found.rows)


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError("SQL is not UTF-8; write it in UTF-8") from error
