"""A ledger in the database of a server, by SQLAlchemy: PostgreSQL, MySQL, MariaDB."""

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from dlq.connectors.external_stores import sql_patience
from dlq.connectors.external_stores.sql_drivers import DRIVERS, ODD, reason_of
from dlq.connectors.local.credentials import password_of
from dlq.core.errors import ArchiveError, ConfigError, LedgerUnreachable, UsageError
from dlq.core.runtime import patience
from dlq.core.settings import Ledger
from dlq.core.text import for_terminal
from dlq.core.values.suggestions import suggest
from dlq.replay.ledger import snapshot
from dlq.replay.ledger.database import Row, Transaction, insert_text, select_text
from dlq.replay.states import State

_ON_MARIADB = (
    "SET SESSION sql_mode = concat(@@sql_mode, ',STRICT_ALL_TABLES') "
    "/*M!100300 , SESSION idle_transaction_timeout = {:d} */"
)
"""Where it is not strict, a text that does not fit is cut and nobody hears of it. MySQL, which has no such
time, reads a comment."""
_END_WHEN_IDLE = {
    "postgresql": "SET idle_in_transaction_session_timeout = '{:d}s'",
    **dict.fromkeys(("mysql", "mariadb"), _ON_MARIADB),
}
_CLOCKS = {
    "postgresql": "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
    **dict.fromkeys(("mysql", "mariadb"), "SELECT CAST(unix_timestamp(sysdate(6)) * 1000000 AS signed)"),
}
"""Dialect -> what its server's clock shows, in microseconds."""
_ENCODINGS = {
    "postgresql": "SELECT current_setting('server_encoding')",
    **dict.fromkeys(
        ("mysql", "mariadb"),
        "SELECT character_set_name FROM information_schema.columns "
        "WHERE table_schema = database() AND table_name = 'replays' AND column_name = 'detail'",
    ),
}
"""Dialect -> how its server keeps the texts of a ledger."""
_CHARSET = "utf8mb4"
"""Of tables in MySQL, whatever the database has."""
_HOLDS_ALL = ("UTF8", "SQL_ASCII", _CHARSET)
"""The second keeps bytes as they come."""
_FOUND_ROWS = 2
"""A flag of MySQL's clients."""
_IN_MYSQL = {'"': "`", " AS BIGINT)": " AS SIGNED)"}
"""What is written otherwise there."""
_T = TypeVar("_T")

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
    mysql_charset=_CHARSET,
)
_EVENTS = sa.Table(
    "events",
    TABLE.metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(64), nullable=False, unique=True),
    sa.Column("event", sa.Text().with_variant(MEDIUMTEXT(), "mysql"), nullable=False),
    mysql_charset=_CHARSET,
)
_COLUMNS = {column.name: column for column in (*_EVENTS.c, *TABLE.c)}


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
        raise ConfigError(
            f"ledger.url: {url.drivername!r} is unknown{suggest(url.drivername, DRIVERS)}; "
            f"known are {', '.join(DRIVERS)}"
        )
    return url.set(drivername=DRIVERS[url.drivername], password=password_of("ledger", settings))


class Server:
    """An engine, and transactions on it (`dlq.replay.ledger.database.Database`)."""

    is_file = False
    encoding = "ascii"

    def __init__(self, url: sa.URL, lease: float, holder: Ledger | None = None) -> None:
        """`lease` in seconds: a server ends a transaction in which it hears nothing for so long. `holder` is
        asked for the password of each connection. Nothing is connected yet."""
        self.engine = _engine(url, math.ceil(lease), holder)

    def make_tables(self, is_known: bool) -> None:
        """See `Database`. Raises UsageError where tables that should be there are not."""
        if is_known and not self.run(
            lambda on: sa.inspect(on.connection).has_table(TABLE.name), patient=False
        ):
            raise UsageError(
                f"the ledger {self._shown_url()} has no table of replays, and the archive has had one there: "
                "all that it records would be sent again. Restore it, or name it in [ledger] url; only if it "
                "is lost, remove the archive's ledger.json"
            )
        try:
            self.run(lambda on: TABLE.metadata.create_all(on.connection), patient=False)
        except ArchiveError:
            # Another host may have made it between our look and our attempt.
            for table in TABLE.metadata.sorted_tables:
                self.run(partial(_Asked.look_at, table=table), patient=False)
        self.encoding = self.run(_Asked.find_encoding, patient=False)

    def run(
        self,
        work: "Callable[[_Asked], _T]",
        reading: bool = False,  # noqa: ARG002 (a file is locked to be written)
        patient: bool = True,
    ) -> _T:
        """See `Database`."""
        for _ in patience.tries(patience.AWAY if patient else 0.0, 0.05, longest=2.0):
            try:
                with self.engine.begin() as connection:
                    return work(_Asked(connection))
            except sa.exc.SQLAlchemyError as error:
                lost = error
                if not isinstance(error, sa.exc.OperationalError):
                    break
            except ODD as error:
                raise self._misunderstood(error) from error
        raise self._failure(lost) from lost

    def close(self) -> None:
        """Close the pool of connections."""
        self.engine.dispose()

    def _failure(self, error: Exception) -> ArchiveError:
        shown, reason = self._shown_url(), reason_of(error)
        if isinstance(error, sa.exc.OperationalError):
            return LedgerUnreachable(f"the ledger {shown} cannot be reached, or denies access: {reason}")
        if isinstance(error, sa.exc.DataError):
            return ArchiveError(
                f"the ledger {shown} cannot hold a text: {reason}; convert it to UTF-8 "
                "(docs/operations.md, A ledger on a server)"
            )
        return ArchiveError(f"the ledger {shown} failed: {reason}")

    def _misunderstood(self, error: Exception) -> ArchiveError:
        said = f"sent what cannot be understood ({type(error).__name__})"
        return ArchiveError(f"the ledger {self._shown_url()} {said}; is it the right server?")

    def _shown_url(self) -> str:
        url = self.engine.url
        return url.set(query={}, database=for_terminal(url.database or "")).render_as_string()


class _Asked(Transaction):
    """A transaction on a server. What it answers is looked at: ValueError for what cannot be."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self._is_mysql = connection.dialect.name != "postgresql"

    def now(self) -> int:
        """Return the server's time: leases are compared between hosts, whose clocks differ."""
        moment = int(self._run(_CLOCKS[self.connection.dialect.name]).scalar_one())
        if not 0 <= moment <= snapshot.LATEST:
            raise ValueError("a time that no calendar has")
        return moment

    def select(self, columns: Sequence[str], rest: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """See `Transaction`."""
        cursor = self._run(select_text(columns, rest), values).cursor
        found = list(cursor.fetchall()) if cursor is not None else []
        for column, cells in zip(columns, zip(*found, strict=True), strict=True) if found else ():
            if not all(_is_ours(_COLUMNS.get(column), cell) for cell in cells):
                raise ValueError(f"a cell that no dlq writes: {column}")
        return found

    def change(self, statement: str, values: Sequence[Any]) -> int:
        """See `Transaction`."""
        return self._run(statement, values).rowcount

    def insert_new(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> int:
        """See `Transaction`; and see `_speak_simply`."""
        # No INSERT IGNORE: it also cuts, and replaces by ?, what does not fit.
        same = f'DUPLICATE KEY UPDATE "{columns[0]}" = "{columns[0]}"'
        known = same if self._is_mysql else "CONFLICT DO NOTHING"
        every = f"{insert_text(table, tuple(columns), len(rows))} ON {known}"
        return self.change(every, tuple(chain.from_iterable(rows)))

    def find_encoding(self) -> str:
        """Return in which encoding the ledger holds texts."""
        kept_in = self._run(_ENCODINGS[self.connection.dialect.name]).scalar()
        return "utf-8" if kept_in in _HOLDS_ALL else "ascii"

    def look_at(self, table: sa.Table) -> None:
        """Raise where there is no such table."""
        self.connection.execute(sa.select(table).limit(1)).all()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> sa.CursorResult[Any]:
        text = statement.replace("%", "%%").replace("?", "%s")
        for here, there in _IN_MYSQL.items() if self._is_mysql else ():
            text = text.replace(here, there)
        return self.connection.exec_driver_sql(text, tuple(values))


def _is_ours(column: sa.Column[Any] | None, cell: object) -> bool:
    """Return whether a cell that a server sends is ours, as `snapshot.check_cells` does of a file's. Of no
    column: it is a number."""
    if cell is None:
        return column is not None and bool(column.nullable)
    if column is TABLE.c.state:
        return cell in get_args(State)
    if column is not None and isinstance(column.type, sa.String):
        return type(cell) is str and len(cell) <= snapshot.LONGEST
    return type(cell) is int and 0 <= cell <= snapshot.LATEST


def _engine(url: sa.URL, idle_seconds: int, holder: Ledger | None) -> sa.Engine:
    # Read committed: a claim must see what others committed, and takes no locks on gaps (MySQL).
    engine = sa.create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED", paramstyle="format")
    if holder is not None:
        sa.event.listen(engine, "do_connect", partial(_give_password, holder))
    is_postgresql = engine.dialect.name == "postgresql"
    sa.event.listen(engine, "do_connect", _speak_simply if is_postgresql else _count_changes)
    sql_patience.bound_answers(engine, patience.ANSWER + idle_seconds)
    sa.event.listen(engine, "connect", _setter(_END_WHEN_IDLE[engine.dialect.name].format(idle_seconds)))
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


def _count_changes(_dialect: Any, _record: object, _words: object, options: dict[str, Any]) -> None:
    """Let MySQL count the rows that a statement changes: a known row, which an insert leaves, is none."""
    options["client_flag"] = options.get("client_flag", 0) & ~_FOUND_ROWS


def _setter(setting: str) -> Callable[[Any, object], None]:
    """Return what tells a server. A host that is suspended in a transaction keeps its locks till then."""

    def tell(connection: Any, _record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(setting)
        connection.commit()

    return tell
