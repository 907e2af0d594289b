"""The ledger in an SQL database, by SQLAlchemy core.

One row a key; a claim is an insert that does nothing where the key is known, so two processes can't
both own it. SQLite runs with a write-ahead log and `synchronous = FULL`: a claim is on the disk before
anything is sent, and what became of it is written together with the next claim.
"""

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from dlq.core.clock import Clock, now
from dlq.core.errors import ArchiveError
from dlq.replay import sql_statements as sql
from dlq.replay.ledger import REPLAYS, Entry, Settlement
from dlq.replay.letters import Letter
from dlq.replay.states import MAY_SEND, MAY_SEND_AGAIN, State

_CHUNK_OF_KEYS = 5_000
_CHUNK_OF_ROWS = 50_000
_BUSY_SECONDS = 60
_SQLITE_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "wal_autocheckpoint = 8000",
)


class SqlLedger:
    """`dlq.replay.ledger.Ledger` on any database that SQLAlchemy speaks and sql.INSERT_IF_NEW knows."""

    def __init__(self, url: str, lease: float, clock: Clock = now) -> None:
        """`lease` in seconds. Creates the table where there is none; raises ArchiveError."""
        self._lease = round(lease * 1_000_000)
        self._clock = clock
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._engine = sa.create_engine(
            url, connect_args={"timeout": _BUSY_SECONDS} if url.startswith("sqlite") else {}
        )
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _open_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        insert = sql.INSERT_IF_NEW[self._engine.dialect.name](sql.TABLE)
        self._insert = insert.compile(dialect=self._engine.dialect, column_keys=list(sql.INSERTED))
        with self._transaction() as connection:
            sql.TABLE.metadata.create_all(connection)

    def claim(self, plan: str, letters: Sequence[Letter], settled: Sequence[Settlement] = ()) -> set[str]:
        keys = [letter.key for letter in letters]
        with self._transaction() as connection:
            self._settle(connection, settled)
            known = {key: (state, of) for key, state, of in connection.execute(sql.KNOWN, {"keys": keys})}
            ours = self._insert_new(connection, plan, [x for x in letters if x.key not in known])
            return ours | self._reclaim(
                connection, plan, [k for k, row in known.items() if _may_send(*row, plan)]
            )

    def renew(self, keys: Sequence[str]) -> set[str]:
        if not keys:
            return set()
        mine = {"keys": keys, "me": self.owner}
        with self._transaction() as connection:
            connection.execute(sql.RENEW, {**mine, "until": self._clock() + self._lease})
            return set(connection.execute(sql.OURS, mine).scalars())

    def settle(self, settled: Sequence[Settlement]) -> None:
        with self._transaction() as connection:
            self._settle(connection, settled)

    def expire(self) -> int:
        moment = self._clock()
        with self._transaction() as connection:
            rows = connection.execute(
                sa.select(sql.T.key, sql.T.owner, sql.T.lease_until).where(sql.T.state == "sending")
            ).all()
            dead = {owner for owner in {row.owner for row in rows} if _is_dead(owner)}
            over = {
                "its sender died before the answer came": [row.key for row in rows if row.owner in dead],
                "the lease ended before the answer came": [
                    row.key for row in rows if row.owner not in dead and row.lease_until < moment
                ],
            }
            return sum(self._resolve(connection, keys, "in_doubt", why) for why, keys in over.items())

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        found: dict[str, State] = {}
        with self._transaction(reading=True) as connection:
            for some in _chunks(keys):
                found.update((key, state) for key, state, _ in connection.execute(sql.KNOWN, {"keys": some}))
        return found

    def counts(self, plan: str) -> Mapping[State, int]:
        wanted = sa.select(sql.T.state, sa.func.count()).where(sql.T.plan == plan).group_by(sql.T.state)
        with self._transaction(reading=True) as connection:
            return {row[0]: row[1] for row in connection.execute(wanted)}

    def entries(self, plan: str, state: State) -> list[Entry]:
        columns = [sql.TABLE.c[name] for name in Entry._fields]
        wanted = sa.select(*columns).where(sql.T.plan == plan, sql.T.state == state).order_by(sql.T.number)
        with self._transaction(reading=True) as connection:
            return [Entry(*row) for row in connection.execute(wanted)]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        with self._transaction() as connection:
            return self._resolve(connection, keys, state, detail)

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        with self._transaction(reading=True) as connection:
            # The driver's own cursor: a Row object for each replay costs as much as reading it.
            cursor = connection.execute(sa.select(*(sql.TABLE.c[f.name] for f in REPLAYS))).cursor
            while cursor is not None and (chunk := cursor.fetchmany(_CHUNK_OF_ROWS)):
                yield tuple(zip(*chunk, strict=True))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _transaction(self, reading: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._engine.execution_options(reading=reading).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise ArchiveError(
                f"the ledger {self._engine.url.render_as_string()} failed: {reason}"
            ) from error

    def _insert_new(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> set[str]:
        if not letters:
            return set()
        moment = self._clock()
        shared = ("sending", self.owner, moment + self._lease, moment, moment)
        rows: list[Any] = [
            (x.key, plan, x.number, x.record_id, str(x.target), x.lap, *shared) for x in letters
        ]
        if not self._insert.positional:
            rows = [dict(zip(sql.INSERTED, row, strict=True)) for row in rows]
        # The compiled text and plain tuples: SQLAlchemy's own executemany costs twice the insert itself.
        done = connection.exec_driver_sql(str(self._insert), rows)
        keys = [letter.key for letter in letters]
        if done.rowcount == len(rows):
            return set(keys)
        return set(connection.execute(sql.OURS, {"keys": keys, "me": self.owner}).scalars())

    def _reclaim(self, connection: sa.Connection, plan: str, keys: Sequence[str]) -> set[str]:
        if not keys:
            return set()
        moment = self._clock()
        mine = {"keys": keys, "me": self.owner}
        connection.execute(sql.RECLAIM, {**mine, "of": plan, "moment": moment, "until": moment + self._lease})
        return set(connection.execute(sql.OURS, mine).scalars())

    def _settle(self, connection: sa.Connection, settled: Sequence[Settlement]) -> None:
        moment = self._clock()
        ordered = sorted(settled, key=_outcome)
        for (state, why), group in groupby(ordered, key=_outcome):
            keys = [one.key for one in group]
            values = {"me": self.owner, "moment": moment, "why": why or None}
            for some in _chunks(keys):
                connection.execute(sql.SETTLE[state], {"keys": some, **values})

    def _resolve(self, connection: sa.Connection, keys: Sequence[str], state: State, why: str) -> int:
        values = {"moment": self._clock(), "why": why}
        return sum(
            connection.execute(sql.RESOLVE[state], {"keys": some, **values}).rowcount
            for some in _chunks(keys)
        )


def _outcome(one: Settlement) -> tuple[State, str]:
    return one.state, one.detail or ""


def _may_send(state: State, of: str, plan: str) -> bool:
    return state in MAY_SEND or (state in MAY_SEND_AGAIN and of != plan)


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + _CHUNK_OF_KEYS] for start in range(0, len(keys), _CHUNK_OF_KEYS))


def _is_dead(owner: str) -> bool:
    host, pid, _ = owner.rsplit("/", 2)
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _open_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_sqlite, not by the driver's guess
    for setting in _SQLITE_SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
