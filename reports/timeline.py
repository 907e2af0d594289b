"""When letters died: counts in equal steps, chosen so that a terminal can show them all."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.archive import brief
from dlq.archive.user_sql import run
from dlq.core.clock import iso
from dlq.core.text import sql_literal

if TYPE_CHECKING:
    import duckdb

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_STEPS = (
    _MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR,
    _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY,
)  # fmt: skip
_MOST_STEPS = 60
_IN_A_DAY = 30 * _MINUTE
ORIGIN = "timestamptz '2000-01-03 00:00:00+00'"
"""A Monday, so that weeks begin where people expect it."""
_ORIGIN_EPOCH = 946_857_600
_SQL = f"""
    SELECT epoch(time_bucket(to_seconds(?), to_timestamp(minute * 60), {ORIGIN}))::BIGINT AS start,
           coalesce(cause, 'no_verdict') AS cause, sum(letters)::BIGINT AS letters FROM _minutes
    GROUP BY ALL ORDER BY ALL"""


_SHORT = 30
_SPAN = "SELECT epoch_us(min(first)), epoch_us(max(last)) FROM _sums WHERE fingerprint IN ({})"
_EACH = """
    SELECT fingerprint,
           ((epoch_us(dead_at) - {first})::HUGEINT * {steps} // {long})::INTEGER AS step, count(*)
    FROM _brief WHERE fingerprint IN ({names}) AND dead_at IS NOT NULL GROUP BY ALL"""


def step_seconds(first: float | None, last: float | None) -> int:
    """Return the smallest of STEPS that needs no more than MOST_STEPS for the span, both in epoch seconds."""
    span = (last or 0) - (first or 0)
    return next((step for step in _STEPS if span / step < _MOST_STEPS - 1), _STEPS[-1])


def gather(
    connection: "duckdb.DuckDBPyConnection", first: float | None, last: float | None
) -> dict[str, Any]:
    """Return `{step_seconds, buckets: [{start, letters, causes: {cause: n}}]}`; empty steps have 0."""
    step = step_seconds(first, last)
    found: dict[int, dict[str, int]] = {}
    for start, cause, letters in run(connection, _SQL, [step]).rows:
        found.setdefault(start, {})[cause] = letters
    starts: Sequence[int] = ()
    if first is not None and last is not None:
        starts = range(_floor(first, step), _floor(last, step) + 1, step)
    buckets = [
        {"start": iso(s * 1_000_000), "letters": sum(found.get(s, {}).values()), "causes": found.get(s, {})}
        for s in starts
    ]
    return {"step_seconds": step, "buckets": buckets}


def count_deaths(connection: "duckdb.DuckDBPyConnection") -> list[dict[str, Any]]:
    """Return `[{start, letters}]` of the failure that `brief.of_failure` holds; empty steps have 0."""
    span = "SELECT epoch(min(dead_at)), epoch(max(dead_at)) FROM _of_failure"
    ((first, last),) = run(connection, span).rows
    return _count(connection, first, last, step_seconds(first, last), "_of_failure")


def count_each(
    connection: "duckdb.DuckDBPyConnection", fingerprints: Sequence[str]
) -> Mapping[str, Sequence[int]]:
    """Return how many letters of each of these failures died in each of the same _SHORT steps, from the first
    death of any of them to the last; a failure of which nothing says when is not there."""
    brief.sum_up(connection)
    names = ", ".join(map(sql_literal, fingerprints)) or "NULL"
    ((first, last),) = run(connection, _SPAN.format(names)).rows  # joined with letters it takes twice as long
    if first is None:
        return {}
    found: dict[str, list[int]] = {}
    sql = _EACH.format(first=first, long=last - first + 1, steps=_SHORT, names=names)
    for name, step, letters in run(connection, sql).rows:
        found.setdefault(name, [0] * _SHORT)[step] = letters
    return found


def count_last_day(connection: "duckdb.DuckDBPyConnection", now: float) -> list[dict[str, Any]]:
    """Return `[{start, letters}]` of the 24 hours until `now`, in epoch seconds; empty steps have 0."""
    since = f"dead_at >= to_timestamp({now - _DAY:.0f}) AND dead_at <= to_timestamp({now:.0f})"
    return _count(connection, now - _DAY, now, _IN_A_DAY, f"_brief WHERE {since}")


def _count(
    connection: "duckdb.DuckDBPyConnection",
    first: float | None,
    last: float | None,
    step: int,
    letters: str,
) -> list[dict[str, Any]]:
    """Count `letters`, given as SQL."""
    if first is None or last is None:
        return []
    sql = f"""
        SELECT epoch(time_bucket(to_seconds({step}), dead_at, {ORIGIN}))::BIGINT AS start, count(*)
        FROM (FROM {letters}) WHERE dead_at IS NOT NULL GROUP BY ALL"""
    found: dict[int, int] = dict(run(connection, sql).rows)
    starts = range(_floor(first, step), _floor(last, step) + 1, step)
    return [{"start": iso(s * 1_000_000), "letters": found.get(s, 0)} for s in starts]


def _floor(moment: float, step: int) -> int:
    return _ORIGIN_EPOCH + int((moment - _ORIGIN_EPOCH) // step) * step
