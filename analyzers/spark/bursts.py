"""Bursts of suppressed duplicates: Spark brings together the letters of a connection, which are in memory at
once, `groups.bursts` says which are of one burst, and what a letter's place shows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.bursts import TOLD_BY, LogLine, Standing, bursts, find, incident_of
from dlq.analyzers.groups.judged import Judged
from dlq.analyzers.spark.rows import IDENTITY, Row, by_group, judged_of
from dlq.archive.analyses import BURSTS, INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_judged = judged_of(TOLD_BY)
_S, _NUMBER = pa.string(), pa.int64()
_ROW = pa.struct([*INCIDENTS, *(field for field in BURSTS if field.name not in INCIDENTS.names)])
_STANDING = pa.schema(
    [
        *((name, _S) for name in (*IDENTITY, "burst_id", "connection_id")),
        *((name, _NUMBER) for name in Standing._fields[1:-2]),
        *((name, _S) for name in Standing._fields[-2:]),
        ("burst", _ROW),
    ]
)
"""A letter of a burst, and once for each burst its rows of the archive's tables."""


def place_in_bursts(letters: "DataFrame", log: "DataFrame | None" = None) -> "DataFrame":
    """Every suppressed duplicate of a known connection, and where it stands: STANDING.

    `log`: what `client_log.join` has found, if anything.
    """
    from pyspark.sql import functions as F

    is_suppressed = (F.col("cause") == "suppressed_duplicate") & F.col("connection_id").isNotNull()
    connection = (F.col("broker").alias("of_broker"), F.col("connection_id").alias("of_connection"))
    suppressed = letters.filter(is_suppressed).select(*connection, *TOLD_BY)
    return by_group(_with_log(suppressed, log), ("of_broker", "of_connection"), (), _standings, _STANDING)


def _with_log(letters: "DataFrame", log: "DataFrame | None") -> "DataFrame":
    """Adds the fields of LogLine: null without a log or a line in it."""
    from pyspark.sql import functions as F

    if log is None:
        return letters.select(
            "*", *(F.lit(None).cast("string").alias(f"log_{name}") for name in LogLine._fields)
        )
    told = log.filter(F.col("record_id").isNotNull()).groupBy("record_id")
    names = ("time", "failed_transport", "reconnected_to")
    once = told.agg(*(F.max(name).alias(f"log_{name}") for name in names))
    return letters.join(once, "record_id", "left").select(*letters.columns, *once.columns[1:])


def _standings(_connection: Row, group: Iterator[Row]) -> Iterator[Row]:
    letters: list[Judged] = []
    log: dict[str, LogLine] = {}
    width = len(LogLine._fields)
    for row in group:
        letters.append(_judged(row[2:-width]))
        log[letters[-1].record_id] = LogLine(*row[-width:])
    members = find(letters, log)
    rows = {one.incident_id: incident_of(one) for one in bursts(members)}
    for letter, name, place in members:
        yield (*letter.identity, name, *place, rows.pop(name, None))


def rows(standing: "DataFrame") -> "DataFrame":
    """The bursts, with the columns of two tables of the archive."""
    from pyspark.sql import functions as F

    return standing.filter(F.col("burst").isNotNull()).select("burst.*")
