"""The SQL of users: checked before it runs, its errors told in one line, its values made plain."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, count, dropwhile
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.archive.storage.store import HELD
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.values.suggestions import suggest

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 1000
_UNKNOWN_COLUMN = re.compile(r'Referenced column "([^"]*)"|does not have a column named "([^"]*)"')
_UNKNOWN_TABLE = re.compile(r"Table with name (.+) does not exist")
_KEYWORD_COLUMNS = {
    re.compile(rf"(?<![\"\w]){name}(?![\"\w])", re.IGNORECASE): f'"{name}"' for name in ("offset", "end")
}
_OF_BYTES = re.compile(r"No function matches .*\bBLOB\b")
_DAMAGE = (
    "No magic bytes", "Corrupt", "Invalid string encoding found in Parquet", "File '", "Footer length error",
    "Failed to read file", "Parquet ", "DELTA_",
)  # fmt: skip
"""How DuckDB begins what it says of a damaged file. Behind its first words it quotes letters, and below them
what the user wrote: that may be any of this, too."""
_OF_A_FILE = "Traceback ("
"""Begins what DuckDB says of an error of a file that is read through Python: lines that are indented, that
error, and DuckDB's picture of the statement."""
_PICTURE = re.compile(r"^LINE \d+: ", re.MULTILINE)
_LONGEST_REASON = 500
_TOO_MUCH = "Out of Memory Error"
_MISSING = ("FileNotFoundError", "No files found that match the pattern")
_SOUGHT_BELOW = re.compile(r'Cannot access file "(.+)/\*\*/\*\.parquet"')
"""What DuckDB takes for a folder where a file that it may read is gone."""
_PREFIX = re.compile(r"^[A-Z][A-Za-z /]* Error: ")
_OF_FILES = ("IO Error: ", "Invalid Error: ")
"""The second is what has no kind, while batches stream through Arrow."""


class Gone(ArchiveError):
    """A file of the archive was removed while it was looked at."""


class Rows(NamedTuple):
    """A result: names of its columns, and its rows as they stream in, values plain."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]

    def objects(self) -> Iterator[dict[str, Any]]:
        """Return the rows, each by the names of its columns."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)


def run(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()) -> Rows:
    """Run one statement. Its rows stream, so read them before the next statement on `connection`.

    Raises UsageError (also while rows stream) for what the user got wrong, ArchiveError for a damaged file.
    """
    with guarded(connection):
        connection.execute(sql, list(parameters))
        names = [column[0] for column in connection.description or ()]
        return Rows(_tell_apart(names), _stream(connection))


def _tell_apart(names: Sequence[str]) -> list[str]:
    """Return names of columns, each but once: `a` and `a_1`, as DuckDB names those of a subquery."""
    found: dict[str, None] = {}
    numbers: dict[str, Iterator[int]] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in numbers.setdefault(name, count(1)))
        found[next(one for one in chain([name], numbered) if one not in found)] = None
    return list(found)


def list_objects(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()
) -> list[dict[str, Any]]:
    """Return all rows of one statement, each by the names of its columns. Raises as `run`."""
    return list(run(connection, sql, parameters).objects())


def _stream(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while True:
        with guarded(connection):
            batch = connection.fetchmany(_BATCH_ROWS)
        if not batch:
            return
        for row in batch:
            yield tuple(_plain_each(row))


_PLAIN = frozenset({str, int, bool, type(None)})
"""Most values are, so nothing more is asked of them."""


def _plain_each(values: Iterable[Any]) -> list[Any]:
    return [value if type(value) in _PLAIN else _plain(value) for value in values]


def _plain(value: Any) -> Any:
    """Return a DuckDB value as JSON knows it. Times become ISO 8601 in UTC; bytes become text, with `\\xNN`
    for what is not UTF-8."""
    if isinstance(value, list | tuple):
        return _plain_each(value)
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat()}{'Z' if value.tzinfo else ''}"
    if isinstance(value, dict):
        return dict(zip(map(str, value), _plain_each(value.values()), strict=True))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def condition(where: str | None) -> str:
    """Return the user's `--where` in parentheses, `(true)` for none; raises UsageError unless it is one
    expression.

    A text that parses within round and within square brackets has closed neither: nothing can be
    smuggled in after the condition.
    """
    import duckdb

    if where is None:
        return "(true)"
    if not where.strip():
        raise UsageError("--where is empty; write a condition, e.g. --where \"cause = 'unknown'\"")
    for opening, closing in ("()", "[]"):
        try:
            duckdb.extract_statements(sql := f"SELECT {opening}{where}\n{closing}")
        except duckdb.Error as error:
            reason = f"{_first_line(error)}{_quoting_hint(sql)}"
            raise UsageError(f"--where {where!r} is not one SQL condition: {reason}; correct it") from error
    return f"({where}\n)"


def single_select(sql: str) -> str:
    """Return `sql`, when it is exactly one reading statement; raises UsageError otherwise."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise UsageError(f"invalid SQL: {_first_line(error)}{_quoting_hint(sql)}; correct it") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("the archive is read-only here; write exactly one SELECT statement")
    return sql


def _quoting_hint(sql: str) -> str:
    """Return a hint where the statement would parse with a column that is also a keyword in quotes."""
    import duckdb

    for bare, quoted in _KEYWORD_COLUMNS.items():
        try:
            duckdb.extract_statements(bare.sub(quoted, sql))
        except duckdb.Error:
            continue
        return f"; write {quoted} in double quotes, it is a word of SQL"
    return ""


@contextmanager
def guarded(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """DuckDB's errors as ours: one line, with the name that was probably meant.

    While batches stream through Arrow the same errors arrive as OSError, so the text decides.
    """
    import duckdb

    try:
        yield
    except OverflowError as error:  # of an interval of millennia
        raise UsageError("SQL: a value is larger than can be shown; cast it, e.g. to varchar") from error
    except (duckdb.Error, OSError, UnicodeDecodeError) as error:
        text = _error_text(error)
        if text.startswith(_TOO_MUCH):
            raise ArchiveError(
                f"this takes more than the 2 GB of memory that a query may use ({_first_line(error)}); ask "
                "for less at once: fewer rows or columns, or shorter lists and texts"
            ) from error
        if _is_gone(error, connection):
            raise Gone(
                "a file of the archive was removed while it was looked at, as `dlq retain` does: run it again"
            ) from error
        if _is_damage(error):
            told = _by_name(_first_line(error))
            anew = "; dlq analyze makes it anew" if "/analyses/" in told else ""
            raise ArchiveError(f"cannot read the archive: {told}{anew}") from error
        if text.startswith("Permission Error") and HELD in text:
            raise ArchiveError(
                "a file of the archive was moved during the query: run it again; if this error repeats, "
                "someone replaces files there"
            ) from error
        if text.startswith("Permission Error"):
            raise UsageError(
                f"only the archive's views can be read: {_first_line(error)}; use those"
            ) from error
        raise UsageError(_explain(text, connection) or f"SQL: {_first_line(error)}; correct it") from error


def _is_gone(error: Exception, connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether a file that the archive names is missing. One that is held open here never is; in an
    object store nobody can hold any."""
    told = _first_line(error)
    if told.startswith(_MISSING):
        return True
    sought = _SOUGHT_BELOW.match(told)
    if sought is None:
        return False
    allowed = connection.execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()
    return (sought[1],) in allowed


def _is_damage(error: Exception) -> bool:
    """Return whether an error is damage: DuckDB says the kind of what users got wrong, and none of what its
    readers of Parquet stumble over."""
    kind = _PREFIX.match(_error_text(error))
    begins = _lines(error)[0].startswith((*_DAMAGE, _OF_A_FILE))
    return kind is None or kind[0] in _OF_FILES or begins


def _by_name(text: str) -> str:
    """Put in the names of the files that are held open here."""

    def name(held: re.Match[str]) -> str:
        with suppress(OSError):
            return os.readlink(held[0])
        return held[0]

    return re.sub(rf"{re.escape(HELD)}\d+", name, text)


def _explain(text: str, connection: duckdb.DuckDBPyConnection) -> str | None:
    if found := _UNKNOWN_COLUMN.search(text):
        name = found[1] or found[2]
        others = [known for known in _names(connection, "column_name") if known != name]
        return f"unknown column {name!r} here{suggest(name, others)}"
    if found := _UNKNOWN_TABLE.search(text):
        views = sorted(_names(connection, "table_name"))
        return f"unknown view {found[1]!r}{suggest(found[1], views)}; the views are {', '.join(views)}"
    if _OF_BYTES.search(text):
        return "a body is bytes; as text it is try(decode(body)), null where it is not UTF-8"
    return None


def _names(connection: duckdb.DuckDBPyConnection, kind: str) -> Iterable[str]:
    shown = "NOT internal AND NOT starts_with(table_name, '_')"
    found = connection.execute(f"SELECT DISTINCT {kind} FROM duckdb_columns() WHERE {shown}").fetchall()
    return [row[0] for row in found]


def _first_line(error: Exception) -> str:
    """Return the message without its kind and its picture of the statement."""
    first = _lines(error)[0]
    return _last_error(_error_text(error)) if first.startswith(_OF_A_FILE) else first


def _last_error(text: str) -> str:
    """Return the error that a traceback ends with, of however many lines it is."""
    told = _PICTURE.split(text.rpartition(_OF_A_FILE)[2])[0].splitlines()[1:]
    message = dropwhile(lambda line: not line.strip() or line[0].isspace(), told)
    return " ".join(" ".join(message).split())[:_LONGEST_REASON] or "no reason given"


def _lines(error: Exception) -> list[str]:
    """Return the lines without blank ones, one at least."""
    told = [line.strip() for line in _PREFIX.sub("", _error_text(error)).splitlines() if line.strip()]
    return told or ["no reason given"]


def _error_text(error: Exception) -> str:
    """Return what DuckDB said. Python cannot make a text of what quotes half a character: of a letter that is
    cut within one, or a name in a damaged file."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "replace").lstrip()
    return str(error).lstrip()
