"""Looking at a ledger in a file by Python's own SQLite: to import SQLAlchemy takes longer than to read it.

And what is checked of such a file before anything in it counts, as somebody else may have made it.
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from dlq.archive.schema import REPLAYS
from dlq.core.errors import ArchiveError
from dlq.core.failures import Event
from dlq.core.runtime import patience
from dlq.core.text import for_terminal, sql_literal
from dlq.replay.ledger.contract import event_of
from dlq.replay.ledger.file import check_opened
from dlq.replay.states import State

_SETTINGS = (
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "wal_autocheckpoint = 8000",
)
_SCHEMA: Mapping[str, str] = {
    "replays": "key VARCHAR(64) NOT NULL, plan VARCHAR(64) NOT NULL, number BIGINT NOT NULL, "
    "record_id VARCHAR(64) NOT NULL, target TEXT NOT NULL, lap INTEGER NOT NULL, state VARCHAR(16) NOT NULL, "
    "owner VARCHAR(255) NOT NULL, lease_until BIGINT NOT NULL, sent_at BIGINT NOT NULL, "
    "updated_at BIGINT NOT NULL, detail TEXT, PRIMARY KEY (key)",
    "events": "number INTEGER NOT NULL, id VARCHAR(64) NOT NULL, event TEXT NOT NULL, PRIMARY KEY (number), "
    "UNIQUE (id)",
}
"""Table -> its columns, as SQLAlchemy has made them for an older dlq, which looks that they are these."""
TABLES = _SCHEMA.keys()
TABLES_MADE = [f"CREATE TABLE IF NOT EXISTS {name} ({columns})" for name, columns in _SCHEMA.items()]
"""The statements that make them where there are none."""
LONGEST = 2**20
"""Characters of a text in a file; a broker's reason is the longest."""
LATEST = 253_402_300_799_999_999
"""The last microsecond that a calendar has; no number of a ledger is larger."""
MANY = 2**31 - 1
"""Times count by what is left of them: a billion rows add up to a number that a database has."""
_CHUNK_OF_ROWS = 50_000


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check what SQLite has opened for `path`, of which it has read nothing yet, and set it up. Raises
    ArchiveError."""
    connection.text_factory = os.fsdecode  # a path may be no UTF-8
    _, _, opened = connection.execute("PRAGMA database_list").fetchone()
    connection.text_factory = str
    if opened:  # none has a name in memory
        check_opened(Path(opened), path)
    connection.isolation_level = None  # transactions are begun by whoever asks, not by the driver's guess
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def check_schema(connection: sqlite3.Connection, path: Path) -> Collection[str]:
    """Return the tables that are there. Raises ArchiveError for tables, views or triggers that are not ours:
    they could do anything."""
    ours = {_plain(f"CREATE TABLE {name} ({columns})"): name for name, columns in _SCHEMA.items()}
    there = set()
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind == "index" and sql is None:  # of a primary key or a unique column
            continue
        if type(sql) is not str or _plain(sql) not in ours:
            raise ArchiveError(f"{path} is no ledger of dlq: it has a {kind} {name!r}")
        there.add(ours[_plain(sql)])
    return there


def _plain(sql: str) -> str:
    """Remove what versions of SQLAlchemy write differently."""
    return "".join(sql.replace('"', "").split())


def check_cells(connection: sqlite3.Connection, path: Path, table: str, where: str = "true") -> None:
    """Raise ArchiveError for a value that we would not have written: SQLite takes any into any column."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    odd = " OR ".join(_oddity(name, kind, needed) for _, name, kind, needed, *_ in columns)
    found = connection.execute(f"SELECT rowid FROM {table} WHERE {where} AND ({odd}) LIMIT 1").fetchone()
    if found:
        raise ArchiveError(
            f"the ledger {path} is damaged: row {found[0]} of {table} holds what no dlq writes"
        )


def _oddity(column: str, kind: str, is_needed: bool) -> str:
    """Return the SQL condition that a cell is none of ours."""
    name = f'"{column}"'
    if kind.startswith(("VARCHAR", "TEXT")):
        odd = f"typeof({name}) <> 'text' OR length({name}) > {LONGEST}"
    else:
        most = LATEST if kind == "BIGINT" else 2**31 - 1
        odd = f"typeof({name}) <> 'integer' OR {name} NOT BETWEEN 0 AND {most}"
    if column == "state":
        odd += f" OR {name} NOT IN ({', '.join(map(repr, get_args(State)))})"
    return f"({odd})" if is_needed else f"({name} IS NOT NULL AND ({odd}))"


class Snapshot:
    """What of `dlq.replay.ledger.Ledger` tells of a file alone, as it is at this moment."""

    def __init__(self, path: Path, known: set[str], record_ids: Collection[str] | None = None) -> None:
        """Look at a file, whose replays are those of these letters alone where any are named. `known`: its
        tables that were looked through, to which those are added that are asked. Raises ArchiveError."""
        self._path, self._known = path, known
        self._chosen = "true"
        if record_ids is not None:
            self._chosen = f"record_id IN ({', '.join(map(sql_literal, record_ids))})"
        self._connection = sqlite3.connect(path, timeout=patience.AWAY)
        try:
            with self._told():
                prepare(self._connection, path)
                self._connection.execute("BEGIN")
                self._there = check_schema(self._connection, path)
        except BaseException:
            self.close()
            raise

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Return them in the order of the keys, in chunks."""
        wanted = f"SELECT {', '.join(REPLAYS.names)} FROM replays WHERE {self._chosen} ORDER BY key"
        for chunk in self._ask("replays", wanted):
            yield tuple(zip(*chunk, strict=True))

    def events(self) -> list[Event]:
        """Return them by number."""
        found = chain.from_iterable(self._ask("events", "SELECT event FROM events ORDER BY number"))
        return [event_of(text) for (text,) in found]

    def version(self) -> tuple[int, ...]:
        """Return how many rows there are, and when they changed, of whatever cells: so none is looked at."""
        updated = "cast(updated_at AS INTEGER)"
        wanted = f"SELECT count(*), max({updated}), sum({updated} % {MANY}) FROM replays"
        found = chain.from_iterable(self._ask("replays", wanted, is_checked=False))
        return tuple(int(part or 0) for row in found for part in row)

    def _ask(self, table: str, sql: str, is_checked: bool = True) -> Iterator[list[tuple[Any, ...]]]:
        if table not in self._there:
            return
        with self._told():
            if is_checked and table not in self._known:
                self._check(table)
            found = self._connection.execute(sql)
            while chunk := found.fetchmany(_CHUNK_OF_ROWS):
                yield chunk

    def _check(self, table: str) -> None:
        """Look through a table, which takes more than a second for a million rows."""
        chosen = self._chosen if table == "replays" else "true"
        check_cells(self._connection, self._path, table, chosen)
        if chosen == "true":
            self._known.add(table)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ArchiveError(f"the ledger {for_terminal(str(self._path))} failed: {error}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
