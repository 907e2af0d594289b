"""Stores outside that know what became of a message: a reader for each kind, chosen here.

A reader streams all that may matter and holds a few hundred records at a time; the join with the
letters is Spark's.
"""

from collections.abc import Callable, Iterator, Mapping

from dlq.connectors import given
from dlq.connectors.external_stores import redis, sql
from dlq.core.settings import Evidence
from dlq.core.store_facts import Fact

_READERS: Mapping[tuple[str, bool], Callable[[Evidence], Iterator[Fact]]] = {
    ("rocketmq-dedup", True): redis.dedup,
    ("rocketmq-dedup", False): sql.dedup,
    ("shine-mq", True): redis.shine,
}
"""(kind, whether it is Redis) -> its reader."""


def read(settings: Evidence) -> Iterator[Fact]:
    """Everything that a store knows now.

    Raises ConfigError, UsageError (a driver is missing), Unreachable, AccessDenied, BrokerError.
    """
    given.check_files_of(f"evidence.{settings.name}", settings)
    is_redis = settings.url.startswith("redis")
    return _READERS[settings.kind, is_redis](settings)
