"""Connecting to an SQL ledger, and running one transaction on it, again where the server went away."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from dlq.connectors.credentials import password_of
from dlq.connectors.external_stores.sql_drivers import DRIVERS
from dlq.core.errors import ArchiveError, ConfigError, LedgerUnreachable
from dlq.core.settings import Ledger
from dlq.core.suggestions import suggest

_SQLITE_BUSY_SECONDS = 60
_SQLITE_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "wal_autocheckpoint = 8000",
)
_PATIENCE_SECONDS = 60.0
"""How long a server may be away: a restart, not an outage."""
_LONGEST_PAUSE = 2.0

T = TypeVar("T")


def server_url(settings: Ledger) -> sa.URL:
    """The URL of a ledger on a server, with driver and password. Raises ConfigError."""
    try:
        url = sa.make_url(settings.url)
    except sa.exc.ArgumentError as error:
        raise ConfigError("ledger.url is no URL; write it like postgresql://user@host/database") from error
    if url.password is not None:
        raise ConfigError(
            "ledger.url holds a password; put it into ledger.password_file, password_command or password_env"
        )
    if url.drivername not in DRIVERS or url.drivername == "sqlite":
        known = ("sqlite", *DRIVERS, "redis")
        raise ConfigError(f"ledger.url: {url.drivername!r} is unknown{suggest(url.drivername, known)}")
    return url.set(drivername=DRIVERS[url.drivername], password=password_of("ledger", settings))


class Database:
    """An engine, and transactions on it. Raises ArchiveError for whatever the database refuses."""

    def __init__(self, url: str | sa.URL) -> None:
        """Nothing is connected yet."""
        self.is_file = sa.make_url(url).get_backend_name() == "sqlite"
        self.engine = _engine(url, self.is_file)

    def run(self, work: Callable[[sa.Connection], T], reading: bool = False, patient: bool = True) -> T:
        """`work` in one transaction; again from its start when a server has ended it."""
        until = time.monotonic() + (_PATIENCE_SECONDS if patient and not self.is_file else 0.0)
        pause = 0.05
        while True:
            try:
                with self.engine.execution_options(reading=reading).begin() as connection:
                    return work(connection)
            except sa.exc.SQLAlchemyError as error:
                if not isinstance(error, sa.exc.OperationalError) or time.monotonic() > until:
                    raise self._failure(error) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failure(self, error: sa.exc.SQLAlchemyError) -> ArchiveError:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        shown = self.engine.url.set(query={}).render_as_string()
        if isinstance(error, sa.exc.OperationalError) and not self.is_file:
            return LedgerUnreachable(f"the ledger {shown} cannot be reached, or denies access: {reason}")
        return ArchiveError(f"the ledger {shown} failed: {reason}")


def _engine(url: str | sa.URL, is_file: bool) -> sa.Engine:
    if not is_file:
        # Read committed: a claim must see what others committed, and takes no locks on gaps (MySQL).
        return sa.create_engine(url, pool_pre_ping=True, isolation_level="READ COMMITTED")
    engine = sa.create_engine(url, connect_args={"timeout": _SQLITE_BUSY_SECONDS})
    sa.event.listen(engine, "connect", _open_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_sqlite, not by the driver's guess
    for setting in _SQLITE_SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get("reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
