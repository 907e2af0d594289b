"""The engine of the many: Spark judges by `mapInArrow` over segments, and groups natively."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from dlq.analyzers import topology
from dlq.analyzers.asked import Asked, Done, span_of
from dlq.analyzers.judging import JUDGED, PART, Files, Part, Terms, judge_share, shares
from dlq.analyzers.spark import (
    bursts,
    client_log,
    duplicates,
    incidents,
    s3a,
    stores,
    transactions,
    user_rules,
    verdicts,
)
from dlq.analyzers.spark.files import files_of, kept_in_memory, lent, read_files, spark_schema, write_table
from dlq.analyzers.spark.rows import rows
from dlq.analyzers.spark.session import session
from dlq.archive.analyses import BURSTS, INCIDENTS, SLOTS, VERDICTS, list_written
from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT
from dlq.core.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(asked: Asked, terms: Terms, kept: Sequence[Part], master: str | None = None) -> Done:
    """All four steps, and all tables written. Raises UsageError when Spark cannot start, ConfigError for a
    bad user rule, ArchiveError for a segment that cannot be read."""
    settings = asked.settings.spark
    with session(settings, master, asked.store.location) as spark, lent(spark, asked.store) as store:
        asked = asked._replace(store=store)
        files = files_of(
            asked.store, {**s3a.configuration(asked.store.location, settings.conf), **settings.conf}
        )
        fresh = _judge_segments(spark, files, terms, asked.fresh(kept), f"{asked.folder}/judged")
        parts = [*kept, *fresh]
        return Done(parts, _look_between(spark, asked, parts))


def _judge_segments(
    spark: "SparkSession", files: Files, terms: Terms, committed: Sequence[Manifest], folder: str
) -> list[Part]:
    """Judge the letters of these segments into files below `folder` of the archive. Raises ArchiveError for a
    segment that cannot be read."""
    parts_of = shares(committed, spark.sparkContext.defaultParallelism)
    if not parts_of:
        return []

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [judge_share(files, terms, parts_of[number], folder) for (number,) in rows(batches)]
        yield pa.RecordBatch.from_pylist([part._asdict() for part in parts], schema=PART)

    each = spark.range(0, len(parts_of), 1, len(parts_of))
    found = each.mapInArrow(run, spark_schema(PART)).collect()
    parts = [Part(*row) for row in found]
    for part in parts:
        if part.damage:
            raise ArchiveError(f"{part.damage}; dlq verify looks through all segments")
    return parts


def _look_between(spark: "SparkSession", asked: Asked, parts: Sequence[Part]) -> dict[str, int] | None:
    """Steps 2 to 4, and all tables written; what the clients' logs came to, where there are some."""
    letters = _letters(spark, asked, parts)
    log_counts = client_log.write(spark, asked.store, letters, asked.logs, f"{asked.folder}/client_log")
    is_burst = sum(part.suppressed for part in parts) or any(
        rule.cause == "suppressed_duplicate" for rule in asked.settings.rules
    )
    standing = _standing(spark, asked, letters) if is_burst else None
    found = verdicts.Found(
        shared=kept_in_memory(duplicates.find_shared(letters)),
        concluded=_transactions(spark, asked, letters) if sum(part.transactions for part in parts) else None,
        told=stores.answers(spark, asked.store, letters, asked.settings, asked.snapshots)
        if asked.snapshots
        else None,
        standing=None if standing is None else standing.drop("burst"),
    )
    changed = verdicts.changes(letters, found, asked.settings.rules, asked.settings.replay.max_laps)
    judged = incidents.add_place(verdicts.apply_changes(letters, kept_in_memory(changed)))
    looked_at = topology.last_look(asked.store, asked.segments)
    slots = kept_in_memory(incidents.find_in(judged, span_of(parts), looked_at))
    _write_incidents(asked, slots, standing)
    write_table(asked.store, slots, SLOTS, f"{asked.folder}/slots")
    write_table(asked.store, incidents.mark(judged, slots), VERDICTS, f"{asked.folder}/verdicts")
    spark.catalog.clearCache()
    return log_counts


def _letters(spark: "SparkSession", asked: Asked, parts: Sequence[Part]) -> "DataFrame":
    """All letters after step 1, and what the user's rules say of them."""
    from pyspark.sql import functions as F

    letters = read_files(spark, asked.store, [part.file for part in parts], JUDGED)
    if asked.since is not None:
        letters = letters.filter(F.col("captured_at") >= F.timestamp_micros(F.lit(asked.since)))
    if not asked.settings.rules:
        return letters.withColumn("user_rule", F.lit(None).cast("string"))
    records = read_files(spark, asked.store, [m.segment for m in asked.chosen], SEGMENT)
    return user_rules.apply_rules(letters, records, asked.settings.rules)


def _transactions(spark: "SparkSession", asked: Asked, letters: "DataFrame") -> "DataFrame":
    """RocketMQ's transactions, written as a table of their own, and what they make of their records."""
    folder = f"{asked.folder}/transactions"
    resolved = transactions.resolve_transactions(letters, topology.node_facts(asked.store))
    write_table(asked.store, resolved, transactions.RESOLVED, folder)
    there = read_files(spark, asked.store, list_written(asked.store, f"{folder}/"), transactions.RESOLVED)
    return transactions.concluded_letters(letters, there)


def _standing(spark: "SparkSession", asked: Asked, letters: "DataFrame") -> "DataFrame":
    """Suppressed duplicates of one reconnect are one burst; its letters are told what their place shows."""
    log = client_log.read(spark, asked.store, f"{asked.folder}/client_log") if asked.logs else None
    standing = kept_in_memory(bursts.place_in_bursts(letters, log))
    write_table(asked.store, bursts.rows(standing), BURSTS, f"{asked.folder}/bursts")
    return standing


def _write_incidents(asked: Asked, slots: "DataFrame", standing: "DataFrame | None") -> None:
    """Letters that died together, and bursts, in one table."""
    table = incidents.table(slots)
    every = table if standing is None else table.unionByName(bursts.rows(standing).select(*INCIDENTS.names))
    write_table(asked.store, every, INCIDENTS, f"{asked.folder}/incidents")
