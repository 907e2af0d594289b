"""The databases that a ledger may be in: what they are asked, and a file, by Python's own SQLite.

To import SQLAlchemy takes a tenth of a replay of thirty thousand letters, so that only a server's (`server`)
is spoken to by it. Statements are plain SQL: `?` is a place for a value, and names stand in double quotes.

SQLite runs with a write-ahead log and `synchronous = FULL`: what is committed is on the disk.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

from dlq.core.clock import now
from dlq.core.errors import ArchiveError, Busy
from dlq.core.runtime import patience
from dlq.core.text import for_terminal
from dlq.replay.ledger import snapshot

_OUTSIDE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN)
"""Errors of the place of a ledger, and not of the ledger."""
_ALONE = "PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; COMMIT"
_T = TypeVar("_T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """One transaction of a database."""

    def now(self) -> int:
        """Return what the database's clock shows, in microseconds."""
        ...

    def select(self, columns: Sequence[str], rest: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """Return the driver's own rows of these columns; `rest` begins with the table."""
        ...

    def change(self, statement: str, values: Sequence[Any]) -> int:
        """Return how many rows a statement has changed."""
        ...

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> int:
        """Insert those of these rows whose key is not there, by one statement: it gives up the interpreter's
        lock once, and a server hears of all at once. Returns how many."""
        ...


class Database(Protocol):
    """Transactions on a database. Raises ArchiveError for whatever it refuses."""

    is_file: bool
    encoding: str
    """In which it holds texts."""

    def make_tables(self, is_known: bool) -> None:
        """Make the tables where there are none; `is_known`: what lies in a file was looked through, and on a
        server there are some."""
        ...

    def run(self, work: Callable[[Transaction], _T], reading: bool = False) -> _T:
        """Do `work` in one transaction; again from its start when a server has ended it."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class File:
    """A ledger in a file: transactions one after the other, from whatever thread."""

    is_file, encoding = True, "utf-8"

    def __init__(self, path: Path, alone: bool = False) -> None:
        """Open it; `alone`: as long as nobody else has. Raises ArchiveError, Busy."""
        self._path, self._lock = path, Lock()
        with self._told():
            self.connection = sqlite3.connect(path, timeout=patience.AWAY, check_same_thread=False)
        try:
            with self._told():
                snapshot.prepare(self.connection, path)
                if alone:
                    self._exclude_others()
        except BaseException:
            self.close()
            raise

    def _exclude_others(self) -> None:
        try:
            self.connection.executescript(_ALONE)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY":
                raise
            raise Busy(f"the ledger {self._path} is in use, perhaps by a replay: wait for its end") from error

    def make_tables(self, is_known: bool) -> None:
        """See `Database`."""
        if not is_known:
            self.run(lambda _: self._check(), reading=True)
        self.run(lambda _: [*map(self.connection.execute, snapshot.TABLES_MADE)])

    def _check(self) -> None:
        """Raise ArchiveError for what we would not have written."""
        for table in snapshot.check_schema(self.connection, self._path):
            snapshot.check_cells(self.connection, self._path, table)

    def run(self, work: Callable[[Transaction], _T], reading: bool = False) -> _T:
        """See `Database`."""
        with self._lock, self._told():
            self.connection.execute("BEGIN" if reading else "BEGIN IMMEDIATE")
            try:
                found = work(self)
                self.connection.execute("COMMIT")
            except BaseException:
                self.connection.rollback()
                raise
            return found

    def now(self) -> int:
        """See `Transaction`."""
        return now()

    def select(self, columns: Sequence[str], rest: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """See `Transaction`. What lies in a file was looked through when it was opened."""
        return self.connection.execute(select_text(columns, rest), values).fetchall()

    def change(self, statement: str, values: Sequence[Any]) -> int:
        """See `Transaction`."""
        return self.connection.execute(statement, values).rowcount

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> int:
        """See `Transaction`."""
        every = f"{insert_text(table, tuple(columns), len(rows))} ON CONFLICT DO NOTHING"
        return self.change(every, tuple(chain.from_iterable(rows)))

    def close(self) -> None:
        """See `Database`."""
        self.connection.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            shown = f"sqlite:///{for_terminal(str(self._path))}"
            is_outside = getattr(error, "sqlite_errorcode", 0) & 0xFF in _OUTSIDE
            advice = "; check its rights, and the room there" if is_outside else ""
            raise ArchiveError(f"the ledger {shown} failed: {error}{advice}") from error


def select_text(columns: Sequence[str], rest: str) -> str:
    """Return a query; a column is a name, or what is made of one."""
    named = (f'"{column}"' if column.isidentifier() else column for column in columns)
    return f"SELECT {', '.join(named)} FROM {rest}"


@lru_cache(maxsize=16)
def insert_text(table: str, columns: tuple[str, ...], rows: int) -> str:
    """Return the insert of so many rows."""
    names, row = ", ".join(f'"{column}"' for column in columns), ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES {', '.join([f'({row})'] * rows)}"
