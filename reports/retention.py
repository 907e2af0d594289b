"""The retention clock: letters that also lie at their broker, and when it will delete them there.

A pull writes down what it learned of its source (`topology/<pull>.json`): RocketMQ's fileReservedTime in
hours, the message TTL of a RabbitMQ dead-letter queue in milliseconds. The archive keeps the letters.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlq.archive import topology as of_pull
from dlq.archive.storage.store import Store
from dlq.archive.user_sql import run
from dlq.core.brokers import plugins

if TYPE_CHECKING:
    import duckdb

_HOUR_MS = 3_600_000
_NEWEST = 200
"""Topology files that are read at most, from the newest on."""
_MOST_HOURS = 24 * 366 * 1000
_SQL = """
    SELECT count(*)::BIGINT AS letters, min(dead_at + to_milliseconds(?)) AS from_time,
           max(dead_at + to_milliseconds(?)) AS until_time
    FROM records
    WHERE source = ? AND (mode = 'copy' OR list_contains(?, broker_kind))
      AND dead_at + to_milliseconds(?) > now()"""


def gather(connection: "duckdb.DuckDBPyConnection", store: Store) -> list[dict[str, Any]]:
    """Return `{source, because, kept_seconds, letters, first, last}` of every source whose broker deletes by
    age, the most urgent first: how many letters it has, when the first and the last are deleted."""
    found = []
    keeping = [name for name, kind in plugins().items() if kind.keeps_letters]
    for source, (because, kept_ms) in sorted(read_limits(store).items()):
        (row,) = run(connection, _SQL, [kept_ms, kept_ms, source, keeping, kept_ms]).rows
        if row[0]:
            shown = {"because": because, "kept_seconds": kept_ms // 1000, "letters": row[0]}
            found.append({"source": source, **shown, "first": row[1], "last": row[2]})
    return sorted(found, key=lambda row: str(row["first"]))


def read_limits(store: Store) -> dict[str, tuple[str, int]]:
    """Return source -> why and after how many milliseconds its broker deletes, by the latest pull of each."""
    limits: dict[str, tuple[str, int]] = {}
    seen: set[str] = set()
    newest = of_pull.list_names(store)[: -_NEWEST - 1 : -1]
    for _, topology in of_pull.read_each(store, newest, but_damaged=True):
        source = str(topology.get("source"))
        if source not in seen and not of_pull.is_of_import(topology):
            seen.add(source)
            limit = limit_of(topology)
            if limit is not None:
                limits[source] = limit
    return limits


def limit_of(topology: Mapping[str, Any]) -> tuple[str, int] | None:
    ttl = topology.get("message_ttl")
    if isinstance(ttl, int) and 0 <= ttl < _MOST_HOURS * _HOUR_MS:
        return "message TTL of the dead-letter queue", ttl
    brokers = topology.get("brokers")
    facts = brokers.values() if isinstance(brokers, dict) else ()
    told = (fact.get("file_reserved_hours") for fact in facts)
    hours = [hours for hours in told if isinstance(hours, int) and 0 < hours < _MOST_HOURS]
    return ("fileReservedTime of the broker", min(hours) * _HOUR_MS) if hours else None
