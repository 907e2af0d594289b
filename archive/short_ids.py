"""Ids as people type them: the beginning of one is enough where no other begins alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dlq.archive.user_sql import run
from dlq.core.errors import UsageError
from dlq.core.identity import ID_HEX_DIGITS
from dlq.core.text import sql_literal
from dlq.core.values.suggestions import find_by_prefix

if TYPE_CHECKING:
    import duckdb

_PREFIX = re.compile(r"[0-9a-f]{8,64}")
_COMPARED = re.compile(
    r"""\brecord_id"?\s*(?:=|<>|!=|(?:not\s+)?in\s*\()\s*'[^']*'(?:\s*,\s*'[^']*')*""", re.IGNORECASE
)
_LITERAL = re.compile(r"'([^']*)'")
_MOST = 6
"""Ids that begin alike: so many are asked for, to say which they are, and whether there are more."""


def is_whole(text: str) -> bool:
    """Return whether this could be the whole id of a letter."""
    return len(text) == ID_HEX_DIGITS and _PREFIX.fullmatch(text) is not None


def record_id(connection: duckdb.DuckDBPyConnection, prefix: str) -> str:
    """Return the id of the letter that begins so. Raises UsageError when none does, or several."""
    wanted = prefix.lower()
    if not _PREFIX.fullmatch(wanted):
        raise UsageError(
            f"{prefix!r} is no record id; give 8 or more of its hex digits, as dlq ls shows them"
        )
    return _only(connection, "_brief", "record_id", wanted, "no letter has the id {}; dlq ls lists them")


def incident(connection: duckdb.DuckDBPyConnection, prefix: str) -> str:
    """Return the latest analysis' incident that begins so. Raises UsageError when none does, or several."""
    missing = "no incident of the latest analysis has the id {}; dlq incidents lists them"
    return _only(connection, "incidents", "incident_id", prefix, missing)


def failure(connection: duckdb.DuckDBPyConnection, prefix: str) -> str:
    """Return the fingerprint that begins so. Raises UsageError when none does, or several."""
    missing = "no letter has the fingerprint {}; dlq report lists failures"
    return _only(connection, "_brief", "fingerprint", prefix, missing)


def expand(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return SQL in which the ids that `record_id` is compared with are whole. Raises UsageError."""

    def whole(text: re.Match[str]) -> str:
        return text[0] if is_whole(text[1]) or not text[1] else sql_literal(record_id(connection, text[1]))

    return _COMPARED.sub(lambda compared: _LITERAL.sub(whole, compared[0]), sql)


def _find_ids(connection: duckdb.DuckDBPyConnection, view: str, column: str, prefix: str) -> list[str]:
    """Return the ids that begin so. A whole one is compared as it is: most segments need not be read then."""
    is_id = column == "record_id" and is_whole(prefix)
    begins = f"{column} = $1" if is_id else f"{column} >= $1 AND starts_with({column}, $1)"
    sql = f"SELECT DISTINCT {column} FROM {view} WHERE {begins} ORDER BY 1 LIMIT {_MOST}"
    return [str(row[0]) for row in run(connection, sql, [prefix]).rows]


def _only(connection: duckdb.DuckDBPyConnection, view: str, column: str, prefix: str, missing: str) -> str:
    return find_by_prefix(prefix, _find_ids(connection, view, column, prefix), missing.format(prefix))
