"""When letters died: counts in equal steps, chosen so that a terminal can show them all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlq.archive.user_sql import run
from dlq.core.clock import iso

if TYPE_CHECKING:
    import duckdb

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEPS = (
    MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY,
)  # fmt: skip
MOST_STEPS = 60
ORIGIN = "timestamptz '2000-01-03 00:00:00+00'"
"""A Monday, so that weeks begin where people expect it."""
_ORIGIN_EPOCH = 946_857_600
_SQL = """
    SELECT epoch(bucket)::BIGINT AS start, cause, sum(letters)::BIGINT AS letters FROM facts
    WHERE bucket IS NOT NULL GROUP BY ALL ORDER BY ALL"""


def step_seconds(first: float | None, last: float | None) -> int:
    """The smallest of STEPS that needs no more than MOST_STEPS for the span, both in epoch seconds."""
    span = (last or 0) - (first or 0)
    return next((step for step in STEPS if span / step < MOST_STEPS - 1), STEPS[-1])


def gather(
    connection: "duckdb.DuckDBPyConnection", first: float | None, last: float | None, step: int
) -> dict[str, Any]:
    """`{step_seconds, buckets: [{start, letters, causes: {cause: n}}]}`; empty steps are there, with 0."""
    found: dict[int, dict[str, int]] = {}
    for start, cause, letters in run(connection, _SQL).rows:
        found.setdefault(start, {})[cause] = letters
    starts: Sequence[int] = ()
    if first is not None and last is not None:
        starts = range(_floor(first, step), _floor(last, step) + 1, step)
    buckets = [
        {"start": iso(s * 1_000_000), "letters": sum(found.get(s, {}).values()), "causes": found.get(s, {})}
        for s in starts
    ]
    return {"step_seconds": step, "buckets": buckets}


def _floor(moment: float, step: int) -> int:
    return _ORIGIN_EPOCH + int((moment - _ORIGIN_EPOCH) // step) * step
