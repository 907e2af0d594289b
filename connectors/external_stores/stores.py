"""Stores outside that know what became of a message: a reader for each kind, chosen here.

A reader streams all that may matter and holds a few hundred records at a time; the join with the
letters is Spark's. What a server says is not trusted: its records have their types and
lengths, or there is an error.
"""

from collections.abc import Callable, Iterator, Mapping

from dlq.connectors import deadline
from dlq.connectors.external_stores import redis, sql
from dlq.connectors.external_stores.sql_drivers import ODD
from dlq.connectors.local import user_files
from dlq.core.errors import BrokerError
from dlq.core.settings import Evidence
from dlq.core.store_facts import Fact

_READERS: Mapping[tuple[str, bool], Callable[[Evidence], Iterator[Fact]]] = {
    ("rocketmq-dedup", True): redis.dedup,
    ("rocketmq-dedup", False): sql.dedup,
    ("shine-mq", True): redis.shine,
}
"""(kind, whether it is Redis) -> its reader."""
_MOST_CHARACTERS = 2**16
"""Of a record: names of a message and a word."""
_MOST_MOMENT = 2**62


def read(settings: Evidence) -> Iterator[Fact]:
    """Read everything that a store knows now.

    Raises ConfigError, UsageError (a driver is missing), Unreachable, AccessDenied, BrokerError.
    """
    user_files.check_files_of(f"evidence.{settings.name}", settings)
    is_redis = settings.url.startswith("redis")
    return _check_facts(f"evidence.{settings.name}", _READERS[settings.kind, is_redis](settings))


def _check_facts(place: str, facts: Iterator[Fact]) -> Iterator[Fact]:
    """Yield facts. Raises BrokerError for what cannot be true, and where there is no end of it."""
    try:
        for fact in facts:
            deadline.check(place)
            if len(fact.key) + len(fact.state) > _MOST_CHARACTERS or abs(fact.until or 0) > _MOST_MOMENT:
                raise ValueError("a record that cannot be true")
            yield fact
    except ODD as error:
        said = f"it sent what cannot be understood ({type(error).__name__})"
        raise BrokerError(f"{place}: {said}; is it the right server?") from error
