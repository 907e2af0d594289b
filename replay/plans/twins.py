"""Letters of one message, of which another was sent.

Which of them is the first, and stands for it, goes by when they died: one that is captured later may have
died earlier, or in the same second. What the ledger knows stays.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.archive import user_sql

if TYPE_CHECKING:
    import duckdb

COLUMNS = ("record_id", "message_id", "duplicate_group", "duplicate_kind")
_SENT = """
    SELECT duplicate_group, record_id FROM verdicts JOIN replays USING (record_id)
    WHERE duplicate_group IS NOT NULL AND state IN ('confirmed', 'sending', 'in_doubt', 'held')"""
_REPEATED = "SELECT record_id FROM records GROUP BY record_id HAVING count(*) > 1"
_OF_ITS_OWN = ("replay_returned",)
"""Of these each is a trip of its own."""

Sent = Mapping[str, set[str]]
"""Group of duplicates -> ids of those of its letters that were sent, or may have been."""


def find_repeated(connection: "duckdb.DuckDBPyConnection") -> set[str]:
    """Return the ids of letters that lie in the archive more than once, each under another source: one was
    renamed, or an export of it imported. Raises ArchiveError."""
    return {record_id for (record_id,) in user_sql.run(connection, _REPEATED).rows}


def find_sent(connection: "duckdb.DuckDBPyConnection") -> Sent:
    """Return what the ledger knows of duplicates. Raises ArchiveError."""
    found: dict[str, set[str]] = {}
    for group, record_id in user_sql.run(connection, _SENT).rows:
        found.setdefault(group, set()).add(record_id)
    return found


def with_sent_twin(sent: Sent, rows: pa.RecordBatch) -> set[str]:
    """Return the ids of those letters, of which `rows` has the COLUMNS, another of whose message was sent.
    Where a letter has an id, an equal body alone does not make it the same message."""
    if not sent:
        return set()
    letters = zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True)
    return {
        record_id
        for record_id, message_id, group, kind in letters
        if kind not in _OF_ITS_OWN and not (kind == "same_body" and message_id is not None)
        if sent.get(group, set()) - {record_id}
    }
