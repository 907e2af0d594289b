"""Incidents: Spark counts the letters of each failure in slots of five minutes; `groups.incidents` says which
slots are part of a burst; Spark brings that back to the letters, and makes the table."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers.groups.incidents import DEPENDENCY, SLOT, Slot, find, in_parts, merge
from dlq.analyzers.groups.incidents import incidents as of_slots
from dlq.analyzers.spark.rows import Meaning, Row, by_group
from dlq.archive.analyses import INCIDENTS, SLOTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOUND = pa.schema([*SLOTS, ("incident", pa.struct(list(INCIDENTS)))])
_PLACE = ("kind", "fingerprint", "slot")


def add_place(letters: "DataFrame") -> "DataFrame":
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
    """Placed letters -> SLOTS, and once for each incident its row of the archive's table. `span`: what the
    archive covers, in slots; `looked_at`: the time of the last pull, in microseconds."""
    from pyspark.sql import functions as F

    at = F.coalesce("dead_at", "published_at")
    first = F.min(F.struct(at.alias("at"), "record_id"))
    source = F.when(F.col("role").isNotNull(), F.col("source"))
    counted = letters.groupBy(*_PLACE, source.alias("transactions_of")).agg(
        F.count("*").alias("letters"),
        first["at"].alias("first_at"),
        first["record_id"].alias("first_record_id"),
        F.max(at).alias("last_at"),
        F.sort_array(F.collect_set("source")).alias("sources"),
        F.sort_array(F.collect_set("cause")).alias("causes"),
    )
    there = counted.filter(F.col("slot").isNotNull()).select(*SLOTS.names[:-1])
    return by_group(there, ("kind",), ("fingerprint", "slot"), _in_kind(span, looked_at), _FOUND)


def _in_kind(span: int, looked_at: int) -> Meaning:
    def meaning(key: Row, group: Iterator[Row]) -> Iterator[Row]:
        (kind,) = key
        apart: dict[tuple[str, int], list[Row]] = {}
        for part in in_parts(_merged(group, apart)):
            found = find(kind, part, span)
            rows = {one.incident_id: one for one in of_slots(found, looked_at)}
            incident_at = {one.slot[:2]: one.incident_id for one in found}
            for slot in part:
                name = incident_at.get(slot[:2])
                for row in apart.pop(slot[:2]):
                    yield (*row, name, None if name is None else rows.pop(name, None))

    return meaning


def _merged(group: Iterator[Row], apart: dict[tuple[str, int], list[Row]]) -> Iterator[Slot]:
    """Slots whose letters were counted apart as one; what they were counted as is put into `apart`."""
    for place, of_place in groupby(group, key=lambda row: (row[1], row[2])):
        apart[place] = list(of_place)
        yield merge([Slot(*row[1:-1]) for row in apart[place]])


def table(found: "DataFrame") -> "DataFrame":
    """The incidents' rows."""
    from pyspark.sql import functions as F

    return found.filter(F.col("incident").isNotNull()).select("incident.*")


def mark(letters: "DataFrame", found: "DataFrame") -> "DataFrame":
    """Placed letters with the incident of their slot; one that they have already stays."""
    from pyspark.sql import functions as F

    named = found.filter(F.col("incident_id").isNotNull())
    of_slot = named.select(*_PLACE, F.col("incident_id").alias("of_slot")).distinct()
    joined = letters.join(of_slot, list(_PLACE), "left")
    return joined.withColumn("incident_id", F.coalesce("incident_id", "of_slot"))
