"""Incidents: Spark counts the letters of each failure in slots of five minutes; `groups.incidents` says which
slots are part of a burst; Spark brings that back to the letters, and makes the table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.incidents import DEPENDENCY, SLOT, Slot, find, in_parts
from dlq.analyzers.groups.incidents import incidents as of_slots
from dlq.analyzers.spark.rows import Meaning, Row, by_group
from dlq.archive.analyses import INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME, _S = pa.timestamp("us", tz="UTC"), pa.string()
_FOUND = pa.schema(
    [
        ("kind", _S),
        ("fingerprint", _S),
        ("slot", pa.int64()),
        ("incident_id", _S),
        ("incident", pa.struct(list(INCIDENTS))),
    ]
)
PLACE = ("kind", "fingerprint", "slot")


def placed(letters: "DataFrame") -> "DataFrame":
    """Adds PLACE: the kind of reason and the slot that a letter counts in; no slot where it counts in none.

    A letter whose time of death is unknown counts where it was published. Suppressed duplicates of a known
    connection are left to `bursts`.
    """
    from pyspark.sql import functions as F

    family, is_suppressed = F.col("exception_family"), F.col("cause") == "suppressed_duplicate"
    is_shared = family.isin(*DEPENDENCY)
    counts = F.col("cause").isNotNull() & ~(is_suppressed & F.col("connection_id").isNotNull())
    at = F.unix_seconds(F.coalesce("dead_at", "published_at"))
    return letters.withColumns(
        {
            "kind": F.when(is_shared, F.lit("dependency")).otherwise(F.coalesce(family, "cause")),
            "slot": F.when(counts, F.floor(at / SLOT)),
        }
    )


def find_in(letters: "DataFrame", span: int, looked_at: int) -> "DataFrame":
    """Placed letters -> the slots that are part of an incident: PLACE, `incident_id`, and once for each
    incident its row of the archive's table. `span`: what the archive covers, in slots; `looked_at`: the time
    of the last pull, in microseconds."""
    from pyspark.sql import functions as F

    at = F.coalesce("dead_at", "published_at")
    first = F.min(F.struct(at.alias("at"), "record_id"))
    counted = letters.groupBy(*PLACE).agg(
        F.count("*").alias("letters"),
        first["at"].alias("first_at"),
        first["record_id"].alias("first_record_id"),
        F.max(at).alias("last_at"),
        F.collect_set("source").alias("sources"),
        F.collect_set("cause").alias("causes"),
    )
    there = counted.filter(F.col("slot").isNotNull())
    return by_group(there, ("kind",), ("fingerprint", "slot"), _in_kind(span, looked_at), _FOUND)


def _in_kind(span: int, looked_at: int) -> Meaning:
    def meaning(key: Row, group: Iterator[Row]) -> Iterator[Row]:
        (kind,) = key
        for part in in_parts(Slot(*row[1:]) for row in group):
            found = find(kind, part, span)
            rows = {one.incident_id: one for one in of_slots(found, looked_at)}
            for slot, incident_id, _ in found:
                yield kind, slot.fingerprint, slot.slot, incident_id, rows.pop(incident_id, None)

    return meaning


def table(found: "DataFrame") -> "DataFrame":
    """The incidents' rows."""
    from pyspark.sql import functions as F

    return found.filter(F.col("incident").isNotNull()).select("incident.*")


def mark(letters: "DataFrame", found: "DataFrame") -> "DataFrame":
    """Placed letters with the incident of their slot; one that they have already stays."""
    from pyspark.sql import functions as F

    of_slot = found.select(*PLACE, F.col("incident_id").alias("of_slot"))
    joined = letters.join(of_slot, list(PLACE), "left")
    return joined.withColumn("incident_id", F.coalesce("incident_id", "of_slot"))
