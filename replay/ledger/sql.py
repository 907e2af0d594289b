"""The ledger in an SQL database, by SQLAlchemy core.

One row per key; a claim is an insert that does nothing where the key is known, so two processes can't
both own it. SQLite runs with a write-ahead log and `synchronous = FULL`: a claim is on the disk before
anything is sent, and what became of it is written together with the next claim.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from dlq.archive.schema import REPLAYS
from dlq.connectors.external_stores import sql_patience
from dlq.connectors.external_stores.sql_drivers import DRIVERS, ODD, reason_of
from dlq.connectors.local.credentials import password_of
from dlq.core import patience
from dlq.core.clock import Clock, now
from dlq.core.errors import ArchiveError, ConfigError, LedgerUnreachable
from dlq.core.failures import Event
from dlq.core.settings import Ledger
from dlq.core.suggestions import suggest
from dlq.core.text import for_terminal
from dlq.replay.ledger import snapshot
from dlq.replay.ledger.contract import COLUMNS, Entry, Result, event_of, is_dead, new_owner
from dlq.replay.letters import Letter
from dlq.replay.states import BY_OWNER, BY_RECONCILE, MAY_SEND, MAY_SEND_AGAIN, SENT, State

_ON_MARIADB = "SET @dlq = 1 /*M!100300 , SESSION idle_transaction_timeout = {:d} */"
"""MySQL, which has no such setting, reads a comment."""
_END_WHEN_IDLE = {
    "postgresql": "SET idle_in_transaction_session_timeout = '{:d}s'",
    **dict.fromkeys(("mysql", "mariadb"), _ON_MARIADB),
}
_ONE_ROW = re.compile(r"(?<= VALUES )\(.*?\)(?= ON CONFLICT|$)")
"""What an insert gives one row."""

_T = TypeVar("_T")


def server_url(settings: Ledger) -> sa.URL:
    """Return the URL of a ledger on a server, with driver and password. Raises ConfigError."""
    try:
        url = sa.make_url(settings.url)
    except (sa.exc.ArgumentError, ValueError) as error:  # the second: of a port
        raise ConfigError("ledger.url is no URL; write it like postgresql://user@host/database") from error
    if url.password is not None:
        raise ConfigError(
            "ledger.url holds a password; put it into ledger.password_file, password_command or password_env"
        )
    if url.drivername in ("redis", "rediss"):
        raise ConfigError(
            "ledger.url: Redis may lose records that it acknowledged, and letters would be sent twice; "
            "use postgresql://user@host/database, mysql:// or sqlite"
        )
    if url.drivername not in DRIVERS or url.drivername == "sqlite":
        known = ("sqlite", *DRIVERS)
        raise ConfigError(
            f"ledger.url: {url.drivername!r} is unknown{suggest(url.drivername, known)}; correct it"
        )
    return url.set(drivername=DRIVERS[url.drivername], password=password_of("ledger", settings))


def file_url(path: Path) -> sa.URL:
    """Return the URL of an SQLite database, whatever characters are in its path."""
    return sa.URL.create("sqlite", database=str(path))


class Database:
    """An engine, and transactions on it. Raises ArchiveError for whatever the database refuses."""

    def __init__(self, url: str | sa.URL, lease: float, holder: Ledger | None = None) -> None:
        """`lease` in seconds: a server ends a transaction in which it hears nothing for so long. `holder` is
        asked for the password of each connection. Nothing is connected yet."""
        self.is_file = sa.make_url(url).get_backend_name() == "sqlite"
        self.engine = _engine(url, self.is_file, math.ceil(lease), holder)

    def run(self, work: Callable[[sa.Connection], _T], reading: bool = False, patient: bool = True) -> _T:
        """`work` in one transaction; again from its start when a server has ended it."""
        away = patience.AWAY if patient and not self.is_file else 0.0
        for _ in patience.tries(away, 0.05, longest=2.0):
            try:
                with self.engine.execution_options(reading=reading).begin() as connection:
                    return work(connection)
            except sqlite3.Error as error:  # while the driver's own rows are fetched
                raise self._failure(error) from error
            except sa.exc.SQLAlchemyError as error:
                lost = error
                if not isinstance(error, sa.exc.OperationalError):
                    break
            except ODD as error:
                if self.is_file:  # its cells were looked at: the fault is ours
                    raise
                raise self._misunderstood(error) from error
        raise self._failure(lost) from lost

    def _failure(self, error: Exception) -> ArchiveError:
        shown, reason = self._shown_url(), reason_of(error)
        if isinstance(error, sa.exc.OperationalError) and not self.is_file:
            return LedgerUnreachable(f"the ledger {shown} cannot be reached, or denies access: {reason}")
        return ArchiveError(f"the ledger {shown} failed: {reason}")

    def _misunderstood(self, error: Exception) -> ArchiveError:
        said = f"sent what cannot be understood ({type(error).__name__})"
        return ArchiveError(f"the ledger {self._shown_url()} {said}; is it the right server?")

    def _shown_url(self) -> str:
        url = self.engine.url
        return url.set(query={}, database=for_terminal(url.database or "")).render_as_string()


def _engine(url: str | sa.URL, is_file: bool, idle_seconds: int, holder: Ledger | None) -> sa.Engine:
    if not is_file:
        # Read committed: a claim must see what others committed, and takes no locks on gaps (MySQL).
        engine = sa.create_engine(
            url, pool_pre_ping=True, isolation_level="READ COMMITTED", paramstyle="format"
        )
        if holder is not None:
            sa.event.listen(engine, "do_connect", partial(_give_password, holder))
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "do_connect", _speak_simply)
        sql_patience.bound_answers(engine, patience.ANSWER + idle_seconds)
        sa.event.listen(engine, "connect", _telling(_END_WHEN_IDLE[engine.dialect.name].format(idle_seconds)))
        return engine
    engine = sa.create_engine(url, connect_args={"timeout": patience.AWAY})
    sa.event.listen(engine, "connect", _preparing(Path(str(engine.url.database))))
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _give_password(
    holder: Ledger, _dialect: Any, _record: object, _words: object, options: dict[str, Any]
) -> None:
    """Give the password anew: a token may have run out since the connection before."""
    if (secret := password_of("ledger", holder)) is not None:
        options["password"] = secret


def _speak_simply(dialect: Any, _record: object, _words: object, options: dict[str, Any]) -> None:
    """Speak simply: each statement is one message. PostgreSQL takes a host that is suspended between those of
    the extended protocol, or of a pipeline (`executemany`), for busy, not for idle, and keeps its locks for
    ever."""
    options["cursor_factory"] = dialect.dbapi.ClientCursor


def _telling(setting: str) -> Callable[[Any, object], None]:
    """Tells a server, once connected. A host that is suspended in a transaction keeps its locks till then."""

    def tell(connection: Any, _record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(setting)
        connection.commit()

    return tell


def _preparing(path: Path) -> Callable[[Any, object], None]:
    return lambda connection, _record: snapshot.prepare(connection, path)


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


TABLE = sa.Table(
    "replays",
    sa.MetaData(),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("plan", sa.String(64), nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("record_id", sa.String(64), nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("lap", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sa.Column("sent_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text),
)
_C = TABLE.c
_EVENTS = sa.Table(
    "events",
    TABLE.metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(64), nullable=False, unique=True),
    sa.Column("event", sa.Text, nullable=False),
)
"""What people said of failures, as JSON in ASCII: a database may know fewer signs than people
write. Rows are only ever added."""
_INSERTED = (
    "key",
    "plan",
    "number",
    "record_id",
    "target",
    "lap",
    "state",
    "owner",
    "lease_until",
    "sent_at",
    "updated_at",
)


def _postgresql_insert(table: sa.Table) -> sa.Insert:
    # It takes a tenth of a second to import, which those whose ledger is a file need not wait for.
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table).on_conflict_do_nothing()


_INSERT_IF_NEW: Mapping[str, Callable[[sa.Table], sa.Insert]] = {
    "sqlite": lambda table: sqlite.insert(table).on_conflict_do_nothing(),
    "postgresql": _postgresql_insert,
    "mysql": lambda table: sa.insert(table).prefix_with("IGNORE"),
    "mariadb": lambda table: sa.insert(table).prefix_with("IGNORE"),
}
_CLOCKS: Mapping[str, sa.TextClause] = {
    "postgresql": sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"),
    **dict.fromkeys(
        ("mysql", "mariadb"), sa.text("SELECT CAST(unix_timestamp(sysdate(6)) * 1000000 AS signed)")
    ),
}
"""Dialect -> what its server's clock shows, in microseconds; a file has the clock of its host."""


def _one_of(states: Collection[State]) -> sa.ColumnElement[bool]:
    return sa.or_(*(_C.state == state for state in states))


_KEYS: sa.BindParameter[str] = sa.bindparam("keys", expanding=True)
_KNOWN = sa.select(_C.key, _C.state, _C.plan, _C.owner).where(_C.key.in_(_KEYS))
_SENDING = sa.select(_C.key, _C.owner, _C.lease_until).where(_C.state == "sending")
_OURS = sa.select(_C.key).where(_C.key.in_(_KEYS), _C.owner == sa.bindparam("me"), _C.state == "sending")
_RENEW = (
    sa.update(TABLE)
    .where(_C.key.in_(_KEYS), _C.owner == sa.bindparam("me"), _C.state == "sending")
    .values(lease_until=sa.bindparam("until"))
)
_RECORD_RESULTS = {
    state: sa.update(TABLE)
    .where(_C.key.in_(_KEYS), _C.owner == sa.bindparam("me"), _one_of(sources))
    .values(state=state, updated_at=sa.bindparam("moment"), detail=sa.bindparam("why"))
    for state, sources in BY_OWNER.items()
}
_RESOLVE = {
    state: sa.update(TABLE)
    .where(_C.key.in_(_KEYS), _one_of(sources))
    .values(state=state, updated_at=sa.bindparam("moment"), detail=sa.bindparam("why"))
    for state, sources in BY_RECONCILE.items()
}
_FORGET = sa.delete(TABLE).where(_C.key.in_(_KEYS), _C.state == "dismissed")
_RECLAIM = (
    sa.update(TABLE)
    .where(
        _C.key == sa.bindparam("of_key"),
        sa.or_(
            *(_C.state == state for state in MAY_SEND),
            *(sa.and_(_C.state == state, _C.plan != sa.bindparam("of")) for state in MAY_SEND_AGAIN),
        ),
    )
    .values(
        state="sending",
        plan=sa.bindparam("of"),
        number=sa.bindparam("of_number"),
        record_id=sa.bindparam("of_record"),
        target=sa.bindparam("to"),
        owner=sa.bindparam("me"),
        lease_until=sa.bindparam("until"),
        sent_at=sa.bindparam("moment"),
        updated_at=sa.bindparam("moment"),
        detail=None,
    )
)


_CHUNK = 2_000
"""SQLite takes 32,766 values in a statement, and a new row has eleven."""
_CHUNK_OF_ROWS = 50_000


class _SomeAreKnownError(Exception):
    """The whole transaction is taken back."""


class SqlLedger:
    """`dlq.replay.ledger.Ledger` on any database that SQLAlchemy speaks and INSERT_IF_NEW knows."""

    def __init__(
        self,
        url: str | sa.URL,
        lease: float,
        clock: Clock | None = None,
        at_close: Callable[[], None] | None = None,
        holder: Ledger | None = None,
        is_known: bool = False,
    ) -> None:
        """`lease` in seconds; `clock`: that of the server unless given; `holder`: see `Database`; `is_known`:
        what lies in the file was looked through. Creates the tables where there are none; raises
        ArchiveError."""
        self._at_close = at_close
        self._lease = round(lease * 1_000_000)
        self._clock = clock
        self.owner = new_owner()
        self.database = Database(url, lease, holder)
        dialect = self.database.engine.dialect
        insert = _INSERT_IF_NEW[dialect.name](TABLE)
        self._new = insert.compile(dialect=dialect, column_keys=list(_INSERTED))
        self._adopt = insert.compile(dialect=dialect, column_keys=list(COLUMNS))
        self._clock_question = None if clock else _CLOCKS.get(dialect.name)
        self._make_table(is_known)

    def _now(self, connection: sa.Connection) -> int:
        """Return the time by the server's clock: leases are compared between hosts, whose clocks differ."""
        if self._clock_question is None:
            return (self._clock or now)()
        moment = int(connection.execute(self._clock_question).scalar_one())
        if not 0 <= moment <= snapshot.LATEST - self._lease:
            raise ValueError("a time that no calendar has")
        return moment

    def _make_table(self, is_known: bool) -> None:
        if self.database.is_file and not is_known:
            self.database.run(_check_file, reading=True)
        try:
            self.database.run(TABLE.metadata.create_all, patient=False)
        except ArchiveError:
            # Another host may have made it between our look and our attempt.
            for table in TABLE.metadata.sorted_tables:
                self.database.run(_first_of(table), patient=False)

    def claim(self, plan: str, letters: Sequence[Letter], results: Sequence[Result] = ()) -> set[str]:
        """Return one transaction. In a file all letters are inserted as if none were known; only where one
        is, they are looked up first."""
        if self.database.is_file:  # whose answers don't get lost on the way
            with suppress(_SomeAreKnownError):
                return self.database.run(lambda c: self._claim_new(c, plan, letters, results))
        return self._claim_unknown(plan, letters, results)

    def _claim_new(
        self, connection: sa.Connection, plan: str, letters: Sequence[Letter], results: Sequence[Result]
    ) -> set[str]:
        """Nearly always nobody knows any of them: then nothing need be asked first."""
        self._record_results(connection, results)
        if self._insert(connection, plan, letters) != len(letters):
            raise _SomeAreKnownError
        return {letter.key for letter in letters}

    def _claim_unknown(self, plan: str, letters: Sequence[Letter], results: Sequence[Result]) -> set[str]:
        keys = [letter.key for letter in letters]
        mine_before: set[str] | None = None

        def work(connection: sa.Connection) -> set[str]:
            nonlocal mine_before
            self._record_results(connection, results)
            rows = _rows_of(connection, _KNOWN, keys)
            known = {row.key for row in rows}
            mine = {row.key for row in rows if row.state == "sending" and row.owner == self.owner}
            mine_before = mine if mine_before is None else mine_before
            # Not empty only when this runs again: the server took the claim, but its answer was lost.
            ours = mine - mine_before
            ours |= self._insert_new(connection, plan, [x for x in letters if x.key not in known])
            open_again = {row.key for row in rows if _may_send(row.state, row.plan, plan)}
            return ours | self._reclaim(connection, plan, [x for x in letters if x.key in open_again])

        return self.database.run(work)

    def renew(self, keys: Sequence[str]) -> set[str]:
        """Puts the end of the lease off for what is still `sending` and ours."""

        def work(connection: sa.Connection) -> set[str]:
            until = self._now(connection) + self._lease
            _about(connection, _RENEW, keys, me=self.owner, until=until)
            return self._ours(connection, keys)

        return self.database.run(work) if keys else set()

    def record_results(self, results: Sequence[Result]) -> None:
        """Record results in one transaction; only from states that the sender itself may leave."""
        self.database.run(lambda connection: self._record_results(connection, results))

    def expire(self) -> int:
        """Owners are looked up on this host; for those of other hosts the lease alone counts."""

        def work(connection: sa.Connection) -> int:
            moment = self._now(connection)
            rows = _rows(connection, _SENDING)
            dead = {owner for owner in {row.owner for row in rows} if is_dead(owner)}
            over = {
                "its sender died before the answer came": [row.key for row in rows if row.owner in dead],
                "the lease ended before the answer came": [
                    row.key for row in rows if row.owner not in dead and row.lease_until < moment
                ],
            }
            return sum(self._resolve(connection, keys, "in_doubt", why) for why, keys in over.items())

        return self.database.run(work)

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        """Return the states of keys, asked in chunks, so that no statement has too many parameters."""

        def work(connection: sa.Connection) -> Mapping[str, State]:
            found: dict[str, State] = {}
            for some in _chunks(keys):
                found.update((row.key, row.state) for row in _rows_of(connection, _KNOWN, some))
            return found

        return self.database.run(work, reading=True)

    def counts(self, plan: str) -> Mapping[State, int]:
        """Counted by the database; states without replays are absent."""
        wanted = sa.select(_C.state, sa.func.count()).where(_C.plan == plan).group_by(_C.state)
        rows = self.database.run(lambda connection: _rows(connection, wanted), reading=True)
        return {row[0]: row[1] for row in rows}

    def counts_of_all(self) -> Mapping[str, Mapping[State, int]]:
        """Return all in one query: none for each plan, which would look at all rows."""
        wanted = sa.select(_C.plan, _C.state, sa.func.count()).group_by(_C.plan, _C.state)
        found: dict[str, dict[State, int]] = {}
        for row in self.database.run(lambda connection: _rows(connection, wanted), reading=True):
            found.setdefault(row[0], {})[row[1]] = row[2]
        return found

    def entries(self, plan: str, state: State, last: int | None = None) -> list[Entry]:
        """Return all in memory: as many as are in that state, or `last`."""
        columns = [TABLE.c[name] for name in Entry._fields]
        wanted = sa.select(*columns).where(_C.plan == plan, _C.state == state)
        wanted = wanted.order_by(_C.number.desc(), _C.key.desc()).limit(last)
        rows = self.database.run(lambda connection: _rows(connection, wanted), reading=True)
        return [Entry(*row) for row in reversed(rows)]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        """Return one transaction, in chunks; from states that reconcile may leave."""
        return self.database.run(lambda connection: self._resolve(connection, keys, state, detail))

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Page by page in the order of the keys, each a query of its own."""
        for chunk in self._paged(REPLAYS.names):
            yield tuple(zip(*chunk, strict=True))

    def sent_since(self, moment: int, plan: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Page by page, as `rows`; by the time of the last change."""
        chosen = _C.state.in_(SENT), _C.updated_at >= moment, _C.plan != plan
        return self._paged(("record_id", "key", "state", "target"), *chosen)

    def all_rows(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Page by page, as `rows`."""
        return self._paged(COLUMNS)

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Inserts that leave known keys alone, in one transaction."""
        text = str(self._adopt)
        return self.database.run(lambda c: sum(_insert_together(c, text, some) for some in _chunks(rows)))

    def forget(self, keys: Sequence[str]) -> int:
        """Deletes rows of the state dismissed alone."""

        def work(connection: sa.Connection) -> int:
            found = ((some, _about(connection, _FORGET, some)) for some in _chunks(keys))
            return sum(_changed(done, len(some)) for some, done in found)

        return self.database.run(work)

    def version(self) -> tuple[int, ...]:
        """Return how many rows there are, and when they changed."""
        times = sa.cast(sa.func.sum(_C.updated_at % snapshot.MANY), sa.BigInteger)
        wanted: Any = sa.select(sa.func.count(_C.key), sa.func.max(_C.updated_at), times)
        (row,) = self.database.run(lambda connection: _rows(connection, wanted), reading=True)
        return tuple(int(part or 0) for part in row)

    def events(self) -> list[Event]:
        """Return one query, by number."""
        wanted = sa.select(_EVENTS.c.event).order_by(_EVENTS.c.number)
        rows = self.database.run(lambda connection: _rows(connection, wanted), reading=True)
        return [event_of(row.event) for row in rows]

    def append(self, events: Sequence[Event]) -> None:
        """Append events in one transaction of inserts that leave known events alone."""
        insert = _INSERT_IF_NEW[self.database.engine.dialect.name](_EVENTS)

        def work(connection: sa.Connection) -> None:
            for event in events:  # one by one, see `_speak_simply`
                connection.execute(insert, {"id": event.id, "event": json.dumps(event)})

        if events:
            self.database.run(work)

    def _paged(
        self, columns: Sequence[str], *chosen: sa.ColumnElement[bool]
    ) -> Iterator[list[tuple[Any, ...]]]:
        names = [TABLE.c[name] for name in columns]
        wanted = sa.select(*names).where(*chosen).order_by(_C.key).limit(_CHUNK_OF_ROWS)
        after, place = "", columns.index("key")
        while chunk := self.database.run(_driver_rows(wanted.where(_C.key > after)), reading=True):
            if chunk[-1][place] == after:
                raise ArchiveError("the ledger's server gives the same replays for ever")
            yield chunk
            after = chunk[-1][place]

    def close(self) -> None:
        """Closes the pool of connections."""
        self.database.engine.dispose()
        if self._at_close:
            self._at_close()

    def _ours(self, connection: sa.Connection, keys: Sequence[str]) -> set[str]:
        return {row.key for row in _rows_of(connection, _OURS, keys, me=self.owner)}

    def _insert_new(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> set[str]:
        keys = [letter.key for letter in letters]
        if self._insert(connection, plan, letters) == len(letters):
            return set(keys)
        return self._ours(connection, keys)

    def _insert(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> int:
        """Return how many of these nobody had claimed before."""
        if not letters:
            return 0
        moment = self._now(connection)
        shared = ("sending", self.owner, moment + self._lease, moment, moment)
        rows: list[Any] = [
            (x.key, plan, x.number, x.record_id, str(x.target), x.lap, *shared) for x in letters
        ]
        return sum(_insert_together(connection, str(self._new), some) for some in _chunks(rows))

    def _reclaim(self, connection: sa.Connection, plan: str, letters: Sequence[Letter]) -> set[str]:
        """Reclaim letters: they are this plan's now, under its numbers, by which reconcile asks the broker
        for them."""
        if not letters:
            return set()
        moment = self._now(connection)
        shared = {"me": self.owner, "of": plan, "moment": moment, "until": moment + self._lease}
        rows = [
            {**shared, "of_key": x.key, "of_number": x.number, "of_record": x.record_id, "to": str(x.target)}
            for x in letters
        ]
        for some in [rows] if self.database.is_file else rows:  # see `_speak_simply`
            connection.execute(_RECLAIM, some)
        keys = [letter.key for letter in letters]
        return self._ours(connection, keys)

    def _record_results(self, connection: sa.Connection, results: Sequence[Result]) -> None:
        moment = self._now(connection)
        ordered = sorted(results, key=_state_and_detail)
        for (state, why), group in groupby(ordered, key=_state_and_detail):
            keys = [one.key for one in group]
            for some in _chunks(keys):
                statement = _RECORD_RESULTS[state]
                _about(connection, statement, some, me=self.owner, moment=moment, why=why or None)

    def _resolve(self, connection: sa.Connection, keys: Sequence[str], state: State, why: str) -> int:
        moment = self._now(connection)
        found = ((s, _about(connection, _RESOLVE[state], s, moment=moment, why=why)) for s in _chunks(keys))
        return sum(_changed(done, len(some)) for some, done in found)


def _check_file(connection: sa.Connection) -> None:
    """Raise ArchiveError for what we would not have written."""
    path = Path(str(connection.engine.url.database))
    file: Any = connection.connection.driver_connection
    for table in snapshot.check_schema(file, path):
        snapshot.check_cells(file, path, table)


def _first_of(table: sa.Table) -> Callable[[sa.Connection], object]:
    return lambda connection: connection.execute(sa.select(table).limit(1)).all()


def _insert_together(connection: sa.Connection, text: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Return one statement for all rows: it gives up the interpreter's lock once, not at each of them, which
    would wait every time for the thread that sends. `text` inserts one row.

    And a server hears of them at once, see `_speak_simply`.
    """
    every = _for_rows(text, len(rows))
    return _changed(connection.exec_driver_sql(every, tuple(chain.from_iterable(rows))), len(rows))


@lru_cache(maxsize=8)
def _for_rows(text: str, rows: int) -> str:
    return _ONE_ROW.sub(lambda one: ", ".join([one[0]] * rows), text)


def _about(
    connection: sa.Connection, statement: sa.Executable, keys: Sequence[str], **values: Any
) -> sa.CursorResult[Any]:
    """Execute a statement about these keys. SQLAlchemy takes longer to write the place of each into it than a
    file's database takes to find them all, so that for a file this is done here."""
    if connection.dialect.name != "sqlite":
        return connection.execute(statement, {"keys": keys, **values})
    text, names, known = _in_sqlite(statement)
    given = {**known, **values}
    every = chain.from_iterable(keys if name == "keys" else (given[name],) for name in names)
    return connection.exec_driver_sql(text.replace(_EACH_KEY, ", ".join("?" * len(keys))), tuple(every))


_EACH_KEY = "__[POSTCOMPILE_keys]"
"""Where SQLAlchemy writes the places of the keys."""


@lru_cache(maxsize=64)
def _in_sqlite(statement: Any) -> tuple[str, Sequence[str], Mapping[str, Any]]:
    """Return a statement's text, what it is given, in order, and what of that is known."""
    compiled = statement.compile(dialect=sqlite.dialect())
    return str(compiled), compiled.positiontup, compiled.params


def _changed(done: sa.CursorResult[Any], most: int) -> int:
    """Return how many rows a statement has changed, by what the database says. Raises ValueError where that
    cannot be."""
    if not 0 <= done.rowcount <= most:
        raise ValueError("a count of rows that cannot be")
    return done.rowcount


def _driver_rows(wanted: sa.Select[Any]) -> Callable[[sa.Connection], list[tuple[Any, ...]]]:
    """Return the driver's own rows: a Row object for each replay costs as much as reading it."""

    def fetch(connection: sa.Connection) -> list[tuple[Any, ...]]:
        cursor = connection.execute(wanted).cursor
        found = list(cursor.fetchall()) if cursor is not None else []
        return _checked(connection, wanted, found)

    return fetch


def _rows(connection: sa.Connection, wanted: sa.Select[Any]) -> Sequence[Any]:
    return _checked(connection, wanted, connection.execute(wanted).all())


def _rows_of(
    connection: sa.Connection, wanted: sa.Select[Any], keys: Sequence[str], **values: Any
) -> Sequence[Any]:
    return _checked(connection, wanted, _about(connection, wanted, keys, **values).all())


_Rows = TypeVar("_Rows", bound=Sequence[Any])


def _checked(connection: sa.Connection, wanted: sa.Select[Any], found: _Rows) -> _Rows:
    """Return rows of a server as they must be; those of a file are looked through when it is opened. Raises
    ValueError."""
    if connection.dialect.name != "sqlite" and found:
        for column, cells in zip(wanted.selected_columns, zip(*found, strict=True), strict=True):
            if not all(_is_ours(column, cell) for cell in cells):
                raise ValueError(f"a cell that no dlq writes: {column.key}")
    return found


def _is_ours(column: sa.ColumnElement[Any], cell: object) -> bool:
    """Return whether a cell that a server sends is ours, as `snapshot.check_cells` does of a file's."""
    if cell is None:
        return bool(getattr(column, "nullable", False))
    if column is _C.state:
        return cell in get_args(State)
    if isinstance(column.type, sa.String):
        return type(cell) is str and len(cell) <= snapshot.LONGEST
    return type(cell) is int and 0 <= cell <= snapshot.LATEST


def _state_and_detail(one: Result) -> tuple[State, str]:
    return one.state, one.detail or ""


def _may_send(state: State, of: str, plan: str) -> bool:
    return state in MAY_SEND or (state in MAY_SEND_AGAIN and of != plan)


def _chunks(all_of_them: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (all_of_them[start : start + _CHUNK] for start in range(0, len(all_of_them), _CHUNK))
