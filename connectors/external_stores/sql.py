"""The table of RocketMQDedupListener in PostgreSQL, MySQL or MariaDB, read through a server-side cursor.

Layout: JDBCPersit of Jaskey/RocketMQDedupListener. Expired rows stay until the same message comes
again, so that they can still say what became of it.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from dlq.connectors.external_stores import sql_patience
from dlq.connectors.external_stores.sql_drivers import DRIVERS, reason_of
from dlq.connectors.local.credentials import password_of
from dlq.core.errors import BrokerError, ConfigError, Unreachable
from dlq.core.runtime import patience
from dlq.core.settings import Evidence
from dlq.core.store_facts import Fact

_COLUMNS = ("application_name", "topic", "tag", "msg_uniq_key", "status", "expire_time")
_ROWS = 5000


def dedup(settings: Evidence) -> Iterator[Fact]:
    """Yield the consumption records of RocketMQDedupListener."""
    engine = _engine(settings)
    try:
        with engine.connect().execution_options(stream_results=True, yield_per=_ROWS) as connection:
            for application, topic, tag, key, state, until in connection.execute(_query(settings)):
                named = ":".join(part for part in (application, topic, tag, key) if part)
                yield Fact(named, str(state), None if until is None else int(until) * 1000)
    except sa.exc.SQLAlchemyError as error:
        kind = Unreachable if isinstance(error, sa.exc.OperationalError) else BrokerError
        shown = engine.url.set(query={}).render_as_string()
        raise kind(f"evidence.{settings.name}: {shown} failed: {reason_of(error)}") from error
    finally:
        engine.dispose()


def _engine(settings: Evidence) -> sa.Engine:
    place = f"evidence.{settings.name}"
    try:
        url = sa.make_url(settings.url)
        url = url.set(drivername=DRIVERS[url.drivername], password=password_of(place, settings))
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise ConfigError(f"{place}.url is no URL; write it like postgresql://user@host/database") from error
    except ImportError as error:
        raise ConfigError(f"{place} needs a database driver: pip install 'dlq[postgres,mysql]'") from error
    if engine.dialect.name != "sqlite":
        sql_patience.bound_answers(engine, patience.UNINDEXED)
    return engine


def _query(settings: Evidence) -> sa.Select[Any]:
    schema, _, name = (settings.table or "t_rocketmq_dedup").rpartition(".")
    table = sa.table(name, *map(sa.column, _COLUMNS), schema=schema or None)
    query = sa.select(*(table.c[column] for column in _COLUMNS))
    if settings.application is not None:
        query = query.where(table.c.application_name == settings.application)
    return query
