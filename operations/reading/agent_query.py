"""SQL for agents: over what `dlq` itself says of letters, and nothing that a letter holds.

Masking what SQL returns would not do: it can take a text apart, or ask for it letter by letter. So the table
is a copy of columns whose values are ours or a broker's (times, counts, names of causes, digests) in a
database of its own, from which no other is in reach, and in a process of its own, which may take so much
memory and time.
"""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import islice
from tempfile import TemporaryFile
from threading import BoundedSemaphore
from typing import IO, Any, BinaryIO, NamedTuple

import duckdb
import pyarrow as pa

from dlq.analyzers.conditions import check_columns
from dlq.archive import user_sql
from dlq.archive.storage import scratch
from dlq.archive.views import LETTER_COLUMNS
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.runtime import patience
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace

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
_MEMORY = 3 * 2**29
"""Bytes that it may take, with the table."""
_places = BoundedSemaphore(2)
"""Statements at once; others wait."""
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


def run_agents_query(workspace: Workspace, sql: str) -> QueryResult:
    """Return what one SELECT finds in the table `letters`. Raises UsageError, also for one that takes too
    long, and ArchiveError for one that takes too much memory."""
    checked = user_sql.single_select(sql)
    with _places, TemporaryFile(dir=scratch.folder()) as file:
        file.write(json.dumps([checked, int(patience.ENDED)]).encode() + b"\n")
        _copy(workspace, file)
        file.seek(0)
        told = _ask(file)
    if "error" in told:
        raise (UsageError if told["is_usage"] else ArchiveError)(told["error"])
    rows = told["rows"]
    return QueryResult(rows[:_MOST_ROWS], len(rows) > _MOST_ROWS)


def _ask(file: IO[bytes]) -> dict[str, Any]:
    """Return what a process of its own answers. Functions of SQL exist that nothing ends, and whose memory
    DuckDB does not count: what they take is taken from nobody else."""
    command = [sys.executable, "-P", "-m", __spec__.name]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 (a module of ours)
            command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=2 * patience.ENDED
        )
        if done.returncode == 0:
            return dict(json.loads(done.stdout))
        if done.returncode != -signal.SIGALRM:
            raise ArchiveError("this takes more memory than a question may have: ask for less at once")
    raise UsageError(f"this takes longer than {patience.ENDED:g} s: ask for less at once")


def _answer(file: BinaryIO) -> dict[str, Any]:
    """Answer in that process: what the statement finds, a row more than are shown, or why it finds
    nothing."""
    sql, seconds = json.loads(file.readline())
    signal.alarm(seconds)  # which ends it within a function, too
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        with closing(_open(file)) as connection:
            return {"rows": _read(user_sql.run(connection, sql).objects())}
    except (UsageError, ArchiveError) as error:
        return {"error": str(error), "is_usage": isinstance(error, UsageError)}


def _read(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Read one row more than are shown. Raises UsageError for rows of very long texts."""
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
    """Return a condition over the same columns, or all of `letters`, written anew. Raises UsageError for one
    that asks for others, or may take long."""
    return check_columns(where, LETTER_COLUMNS if sees_all else COLUMNS)


def _copy(workspace: Workspace, file: IO[bytes]) -> None:
    """Write these columns of all letters, as a stream of Arrow."""
    quoted = ", ".join(f'"{name}"' for name in COLUMNS)
    with closing(open_views(workspace)) as archive, user_sql.guarded(archive):
        found = archive.sql(f"SELECT {quoted} FROM letters").to_arrow_reader()
        with pa.ipc.new_stream(file, found.schema) as stream:
            for batch in found:
                stream.write_batch(batch)


def _open(file: BinaryIO) -> duckdb.DuckDBPyConnection:
    """Return a locked database in memory that holds the table and nothing else."""
    own = duckdb.connect(config=_CONFIG)
    own.execute("SET TimeZone = 'UTC'")
    own.execute("SET enable_progress_bar = false")
    own.register("_letters", pa.ipc.open_stream(file))
    own.execute("CREATE TABLE letters AS SELECT * FROM _letters")
    own.unregister("_letters")
    own.execute("SET enable_external_access = false")
    own.execute("SET lock_configuration = true")
    return own


if __name__ == "__main__":
    json.dump(_answer(sys.stdin.buffer), sys.stdout)
