"""SQL for agents: over what `dlq` itself says of letters, and nothing that a letter holds.

Masking what SQL returns would not do: it can take a text apart, or ask for it letter by letter. So the table
is a copy of columns whose values are ours or a broker's (times, counts, names of causes, digests) in a
database of its own, from which no other is in reach.
"""

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from threading import Timer
from typing import Any, NamedTuple

import duckdb

from dlq.analyzers.conditions import check_columns
from dlq.archive import user_sql
from dlq.archive.views import LETTER_COLUMNS
from dlq.core.errors import UsageError
from dlq.operations.desk import Desk
from dlq.operations.views import open_views

COLUMNS = (
    "record_id", "source", "broker", "broker_kind", "dead_letter_queue", "queue_id", "offset", "published_at",
    "first_dead_at", "dead_at", "expires_at", "captured_at", "attempts", "redelivered", "body_size",
    "persistent", "priority", "mode", "cause", "mechanism", "rule", "proof", "stale_evidence",
    "exception_family", "fingerprint", "duplicate_group", "duplicate_kind", "transaction_state",
    "incident_id", "laps", "advice", "replay_state", "analysis", "still_queued",
)  # fmt: skip
_MOST_ROWS = 50
_MOST_TEXT = 2**20
"""Characters of all texts of a result: what is longer would be masked for minutes, and then cut to a few."""
_SECONDS = 30.0
"""After which a statement is ended."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "1GB",
    "temp_directory": "",
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_persistent_secrets": False,
    "allow_unsigned_extensions": False,
}


class QueryResult(NamedTuple):
    """Rows, as JSON knows them, and whether there were more than MOST_ROWS."""

    rows: list[dict[str, Any]]
    is_cut: bool


def run_agents_query(desk: Desk, sql: str) -> QueryResult:
    """What one SELECT finds in the table `letters`. Raises UsageError, also for one that takes too long."""
    checked = user_sql.single_select(sql)
    with closing(_copy(desk)) as connection:
        ending = Timer(_SECONDS, connection.interrupt)
        ending.start()
        try:
            rows = _read(user_sql.run(connection, checked).objects())
        finally:
            ending.cancel()
    return QueryResult(rows[:_MOST_ROWS], len(rows) > _MOST_ROWS)


def _read(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row more than are shown. Raises UsageError for rows of very long texts."""
    rows, left = [], _MOST_TEXT
    for row in islice(found, _MOST_ROWS + 1):
        rows.append(row)
        left -= sum(map(_length_of, row.values()))
        if left < 0:
            raise UsageError(
                f"this finds more than {_MOST_TEXT:,} characters; ask for shorter texts or lists"
            )
    return rows


def _length_of(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_length_of, (*value, *value.values())))
    return sum(map(_length_of, value)) if isinstance(value, list) else len(str(value))


def check_condition(where: str, sees_all: bool = False) -> str:
    """A condition over the same columns, or all of `letters`, written anew. Raises UsageError for one that
    asks for others, or may take long."""
    return check_columns(where, LETTER_COLUMNS if sees_all else COLUMNS)


def _copy(desk: Desk) -> duckdb.DuckDBPyConnection:
    """A locked database in memory that holds the table and nothing else."""
    quoted = ", ".join(f'"{name}"' for name in COLUMNS)
    own = duckdb.connect(config=_CONFIG)
    own.execute("SET TimeZone = 'UTC'")
    own.execute("SET enable_progress_bar = false")
    with closing(open_views(desk)) as archive, user_sql.guarded(archive):
        own.register("_letters", archive.sql(f"SELECT {quoted} FROM letters").to_arrow_reader())
        own.execute("CREATE TABLE letters AS SELECT * FROM _letters")
        own.unregister("_letters")
    own.execute("SET enable_external_access = false")
    own.execute("SET lock_configuration = true")
    return own
