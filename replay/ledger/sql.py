"""The ledger in an SQL database, by SQLAlchemy core.

One row a key; a claim is an insert that does nothing where the key is known, so two processes can't
both own it. SQLite runs with a write-ahead log and `synchronous = FULL`: a claim is on the disk before
anything is sent, and what became of it is written together with the next claim.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any, TypeVar

import sqlalchemy as sa

from dlq.core.clock import Clock, now
from dlq.core.errors import ArchiveError
from dlq.replay.ledger import COLUMNS, REPLAYS, Entry, Settlement
from dlq.replay.ledger import sql_statements as sql
from dlq.replay.ledger.owner import is_dead, new_owner
from dlq.replay.ledger.sql_engine import Database
from dlq.replay.letters import Letter
from dlq.replay.states import MAY_SEND, MAY_SEND_AGAIN, State

_CHUNK = 2_000
"""SQLite takes 32,766 values in a statement, and a new row has eleven."""
_CHUNK_OF_ROWS = 50_000
T = TypeVar("T")


class _SomeAreKnownError(Exception):
    """The whole transaction is taken back."""


class SqlLedger:
    """`dlq.replay.ledger.Ledger` on any database that SQLAlchemy speaks and sql.INSERT_IF_NEW knows."""

    def __init__(self, url: str | sa.URL, lease: float, clock: Clock = now) -> None:
        """`lease` in seconds. Creates the table where there is none; raises ArchiveError."""
        self._lease = round(lease * 1_000_000)
        self._clock = clock
        self.owner = new_owner()
        self._database = Database(url)
        dialect = self._database.engine.dialect
        insert = sql.INSERT_IF_NEW[dialect.name](sql.TABLE)
        self._new = insert.compile(dialect=dialect, column_keys=list(sql.INSERTED))
        self._adopt = insert.compile(dialect=dialect, column_keys=list(COLUMNS))
        self._make_table()

    def _make_table(self) -> None:
        try:
            self._database.run(sql.TABLE.metadata.create_all, patient=False)
        except ArchiveError:
            # Another host may have made it between our look and our attempt.
            self._database.run(lambda c: c.execute(sa.select(sql.T.key).limit(1)).all(), patient=False)

    def claim(self, plan: str, letters: Sequence[Letter], settled: Sequence[Settlement] = ()) -> set[str]:
        if self._database.is_file:  # whose answers don't get lost on the way
            with suppress(_SomeAreKnownError):
                return self._database.run(lambda c: self._claim_new(c, plan, letters, settled))
        return self._claim_unknown(plan, letters, settled)

    def _claim_new(
        self,
        connection: sa.Connection,
        plan: str,
        letters: Sequence[Letter],
        settled: Sequence[Settlement],
    ) -> set[str]:
        """Nearly always nobody knows any of them: then nothing need be asked first."""
        self._settle(connection, settled)
        if self._insert(connection, plan, letters) != len(letters):
            raise _SomeAreKnownError
        return {letter.key for letter in letters}

    def _claim_unknown(self, plan: str, letters: Sequence[Letter], settled: Sequence[Settlement]) -> set[str]:
        keys = [letter.key for letter in letters]
        mine_before: set[str] | None = None

        def work(connection: sa.Connection) -> set[str]:
            nonlocal mine_before
            self._settle(connection, settled)
            rows = connection.execute(sql.KNOWN, {"keys": keys}).all()
            known = {row.key for row in rows}
            mine = {row.key for row in rows if row.state == "sending" and row.owner == self.owner}
            mine_before = mine if mine_before is None else mine_before
            # Not empty only when this runs again: the server took the claim, but its answer was lost.
            ours = mine - mine_before
            ours |= self._insert_new(connection, plan, [x for x in letters if x.key not in known])
            open_again = {row.key for row in rows if _may_send(row.state, row.plan, plan)}
            return ours | self._reclaim(connection, plan, [x for x in letters if x.key in open_again])

        return self._database.run(work)

    def renew(self, keys: Sequence[str]) -> set[str]:
        mine = {"keys": keys, "me": self.owner}

        def work(connection: sa.Connection) -> set[str]:
            connection.execute(sql.RENEW, {**mine, "until": self._clock() + self._lease})
            return set(connection.execute(sql.OURS, mine).scalars())

        return self._database.run(work) if keys else set()

    def settle(self, settled: Sequence[Settlement]) -> None:
        self._database.run(lambda connection: self._settle(connection, settled))

    def expire(self) -> int:
        moment = self._clock()

        def work(connection: sa.Connection) -> int:
            rows = connection.execute(sql.SENDING).all()
            dead = {owner for owner in {row.owner for row in rows} if is_dead(owner)}
            over = {
                "its sender died before the answer came": [row.key for row in rows if row.owner in dead],
                "the lease ended before the answer came": [
                    row.key for row in rows if row.owner not in dead and row.lease_until < moment
                ],
            }
            return sum(self._resolve(connection, keys, "in_doubt", why) for why, keys in over.items())

        return self._database.run(work)

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        def work(connection: sa.Connection) -> Mapping[str, State]:
            found: dict[str, State] = {}
            for some in _chunks(keys):
                found.update((row.key, row.state) for row in connection.execute(sql.KNOWN, {"keys": some}))
            return found

        return self._database.run(work, reading=True)

    def counts(self, plan: str) -> Mapping[State, int]:
        wanted = sa.select(sql.T.state, sa.func.count()).where(sql.T.plan == plan).group_by(sql.T.state)
        rows = self._database.run(lambda connection: connection.execute(wanted).all(), reading=True)
        return {row[0]: row[1] for row in rows}

    def entries(self, plan: str, state: State) -> list[Entry]:
        columns = [sql.TABLE.c[name] for name in Entry._fields]
        wanted = sa.select(*columns).where(sql.T.plan == plan, sql.T.state == state).order_by(sql.T.number)
        rows = self._database.run(lambda connection: connection.execute(wanted).all(), reading=True)
        return [Entry(*row) for row in rows]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        return self._database.run(lambda connection: self._resolve(connection, keys, state, detail))

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        for chunk in self._paged(REPLAYS.names):
            yield tuple(zip(*chunk, strict=True))

    def everything(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        return self._paged(COLUMNS)

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        given = rows if self._adopt.positional else [dict(zip(COLUMNS, r, strict=True)) for r in rows]
        return self._database.run(lambda c: c.exec_driver_sql(str(self._adopt), list(given)).rowcount)

    def forget(self, keys: Sequence[str]) -> int:
        def work(connection: sa.Connection) -> int:
            return sum(connection.execute(sql.FORGET, {"keys": some}).rowcount for some in _chunks(keys))

        return self._database.run(work)

    def _paged(self, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        wanted = sa.select(*(sql.TABLE.c[name] for name in columns)).order_by(sql.T.key).limit(_CHUNK_OF_ROWS)
        after = ""
        while chunk := self._database.run(_driver_rows(wanted.where(sql.T.key > after)), reading=True):
            yield chunk
            after = chunk[-1][columns.index("key")]

    def warnings(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        self._database.engine.dispose()

    def _insert_new(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> set[str]:
        keys = [letter.key for letter in letters]
        if self._insert(connection, plan, letters) == len(letters):
            return set(keys)
        return set(connection.execute(sql.OURS, {"keys": keys, "me": self.owner}).scalars())

    def _insert(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> int:
        """How many of these nobody had claimed before."""
        if not letters:
            return 0
        moment = self._clock()
        shared = ("sending", self.owner, moment + self._lease, moment, moment)
        rows: list[Any] = [
            (x.key, plan, x.number, x.record_id, str(x.target), x.lap, *shared) for x in letters
        ]
        if self._database.is_file:
            return sum(_insert_together(connection, str(self._new), some) for some in _chunks(rows))
        if not self._new.positional:
            rows = [dict(zip(sql.INSERTED, row, strict=True)) for row in rows]
        # The compiled text and plain tuples: SQLAlchemy's own executemany costs twice the insert itself.
        return connection.exec_driver_sql(str(self._new), rows).rowcount

    def _reclaim(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> set[str]:
        """They are this plan's now, under its numbers: by these reconcile asks the broker for them."""
        if not letters:
            return set()
        moment = self._clock()
        shared = {"me": self.owner, "of": plan, "moment": moment, "until": moment + self._lease}
        rows = [
            {**shared, "of_key": x.key, "of_number": x.number, "of_record": x.record_id, "to": str(x.target)}
            for x in letters
        ]
        connection.execute(sql.RECLAIM, rows)
        keys = [letter.key for letter in letters]
        return set(connection.execute(sql.OURS, {"keys": keys, "me": self.owner}).scalars())

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


def _insert_together(connection: sa.Connection, text: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """One statement for all rows: it gives up the interpreter's lock once, not at each of them, which would
    wait every time for the thread that sends. `text` inserts one row."""
    one = f"({', '.join('?' * len(sql.INSERTED))})"
    every = text.replace(one, ", ".join([one] * len(rows)))
    return connection.exec_driver_sql(every, tuple(chain.from_iterable(rows))).rowcount


def _driver_rows(wanted: sa.Select[Any]) -> Callable[[sa.Connection], list[tuple[Any, ...]]]:
    """The driver's own rows: a Row object for each replay costs as much as reading it."""

    def fetch(connection: sa.Connection) -> list[tuple[Any, ...]]:
        cursor = connection.execute(wanted).cursor
        return list(cursor.fetchall()) if cursor is not None else []

    return fetch


def _outcome(one: Settlement) -> tuple[State, str]:
    return one.state, one.detail or ""


def _may_send(state: State, of: str, plan: str) -> bool:
    return state in MAY_SEND or (state in MAY_SEND_AGAIN and of != plan)


def _chunks(all_of_them: Sequence[T]) -> Iterator[Sequence[T]]:
    return (all_of_them[start : start + _CHUNK] for start in range(0, len(all_of_them), _CHUNK))
