"""An analysis: committed segments in, verdicts out.

Stage 1 judges each record by itself (`classify`); its rows are kept below the analysis and used
again by later analyses under the same rules. Stage 2 looks across all records (duplicates, advice)
and writes the verdicts. `analysis.json` comes last: without it nothing counts.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlq.analyzers import (
    advice,
    bursts,
    changes,
    client_log,
    duplicates,
    duplicates_rocketmq,
    evidence,
    incidents,
    rules,
    topology,
    transaction_facts,
    transactions,
)
from dlq.analyzers.classify import classify, judged_schema
from dlq.analyzers.reading import read_files, read_records, rows_of, spark_schema, spark_url, written
from dlq.analyzers.session import session
from dlq.analyzers.topology import Facts
from dlq.archive import analyses, manifests
from dlq.archive.analyses import TABLES, VERDICTS, Analysis
from dlq.archive.evidence import Snapshot
from dlq.archive.housekeeping import steady_segments
from dlq.archive.manifests import Manifest
from dlq.archive.segments import broker_kinds
from dlq.archive.store import Store
from dlq.core import clock
from dlq.core.causes import CAUSES
from dlq.core.clock import Clock
from dlq.core.errors import UsageError
from dlq.core.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_LETTERS = 20_000
"""Up to so many a local session is set up to start fast instead of to run fast."""


@dataclass(frozen=True)
class Part:
    """Stage 1 rows of some segments, kept by the analysis that made them."""

    files: tuple[str, ...]
    stems: tuple[str, ...]


def analyze(
    store: Store,
    settings: Settings,
    master: str | None = None,
    since: int | None = None,
    now: Clock = clock.now,
    client_logs: Sequence[str] = (),
    snapshots: Sequence[Snapshot] = (),
) -> Analysis:
    """Judge everything captured (since a time in microseconds) and commit a new analysis.

    `client_logs` are paths and globs of consumers' logs, joined with suppressed duplicates; `snapshots` are
    what the stores of `[evidence.NAME]` said (`dlq.capture.evidence.take`). Raises UsageError
    when nothing was captured, a log is not there, or Spark cannot start, ConfigError for a bad user rule;
    Busy when segments are being written again for long.
    """
    with steady_segments(store):
        return _analyze(store, settings, master, since, now, client_logs, snapshots)


def _analyze(
    store: Store,
    settings: Settings,
    master: str | None,
    since: int | None,
    now: Clock,
    client_logs: Sequence[str],
    snapshots: Sequence[Snapshot],
) -> Analysis:
    started = time.monotonic()
    logs = client_log.files(client_logs)
    segments = [m for m in manifests.every(store) if m.rows]
    if not segments:
        raise UsageError("nothing captured yet: dlq pull, or dlq import FILE")
    chosen = [m for m in segments if since is None or m.created_at >= clock.iso(since)]
    facts = topology.facts(store, settings)
    digest = rules.digest(settings.rules, facts)
    last = analyses.latest(store)
    name = _new_name(now(), last)
    kept = _kept_parts(store, last, digest, {m.stem for m in segments})
    known = {stem for part in kept for stem in part.stems}
    kinds = broker_kinds(store, chosen)
    few = not logs and sum(m.rows for m in chosen) <= FEW_LETTERS
    with session(settings.spark, master, few, store.location) as spark:
        fresh = _judge(spark, store, settings, facts, [m for m in chosen if m.stem not in known], name, kinds)
        judged = _read_parts(spark, store, [*kept, *fresh], since)
        if "rocketmq" in kinds:
            judged = _with_transactions(spark, store, judged, f"analyses/{name}/transactions")
        told = evidence.answers(spark, store, judged, settings, snapshots) if snapshots else None
        joined = client_log.write(spark, store, judged, logs, f"analyses/{name}/client_log")
        log = client_log.read(spark, store, f"analyses/{name}/client_log") if logs else None
        verdicts = across(judged, settings, kinds, told, few)
        if "activemq" in kinds:
            verdicts = _with_bursts(store, judged, verdicts, log, f"analyses/{name}")
        verdicts = incidents.write(store, segments, judged, verdicts, f"analyses/{name}/incidents")
        counts = _write(store, verdicts, f"analyses/{name}/verdicts")
        spark.catalog.clearCache()
        tables = {table: written(store, f"analyses/{name}/{table}/") for table in TABLES}
        changed = changes.against(spark, store, last, counts, tables["verdicts"])
    analysis = Analysis(
        analysis=name,
        records=sum(counts.values()),
        causes=counts,
        seconds=round(time.monotonic() - started, 3),
        created_at=clock.iso(now()),
        rules_digest=digest,
        tables=tables,
        segments=tuple(m.stem for m in chosen),
        extra={
            "parts": [vars(part) for part in (*kept, *fresh)],
            "changed": changed,
            "incidents": rows_of(store, tables["incidents"]),
            **joined,
            **evidence.summary(snapshots),
        },
    )
    analyses.commit(store, analysis)
    return analysis


def _new_name(micros: int, last: Analysis | None) -> str:
    """Sorts after the last one, even when the clock was set back."""
    name = f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y%m%dT%H%M%S}-{micros % 1_000_000:06d}"
    return name if last is None or name > last.analysis else f"{last.analysis}.1"


def _kept_parts(store: Store, last: Analysis | None, digest: str, counting: set[str]) -> list[Part]:
    """Parts of the last analysis that still hold: same rules, all their segments count, files are there."""
    if last is None or last.rules_digest != digest:
        return []
    parts = [Part(tuple(part["files"]), tuple(part["stems"])) for part in last.extra.get("parts", ())]
    present = set(store.list("analyses/"))
    return [part for part in parts if counting.issuperset(part.stems) and present.issuperset(part.files)]


def _judge(
    spark: "SparkSession",
    store: Store,
    settings: Settings,
    facts: Facts,
    committed: list[Manifest],
    name: str,
    kinds: Collection[str],
) -> list[Part]:
    """Stage 1 of these segments. Bodies are read only for letters whose rules ask for them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if not committed:
        return []
    folder = f"analyses/{name}/judged"
    asks = F.coalesce(F.expr(rules.wants_body()), F.lit(False))
    seen = Observation("bodies")
    plain = read_records(spark, store, committed, with_body=False)
    records = plain.observe(seen, F.count_if(asks).alias("asked"))
    judged = classify(records.filter(~asks), facts, settings.rules, kinds)
    judged.write.parquet(spark_url(store.url(f"{folder}/plain")))
    if seen.get["asked"]:
        asking = read_records(spark, store, committed, with_body=True).filter(asks)
        classify(asking, facts, settings.rules, kinds).write.parquet(spark_url(store.url(f"{folder}/bodies")))
    return [Part(written(store, f"{folder}/"), tuple(m.stem for m in committed))]


def _read_parts(spark: "SparkSession", store: Store, parts: Sequence[Part], since: int | None) -> "DataFrame":
    from pyspark.sql import functions as F

    judged = read_files(spark, store, [file for part in parts for file in part.files], judged_schema())
    return (
        judged if since is None else judged.filter(F.col("captured_at") >= F.timestamp_micros(F.lit(since)))
    )


def _with_transactions(spark: "SparkSession", store: Store, judged: "DataFrame", folder: str) -> "DataFrame":
    """RocketMQ's transactions, written as a table of their own; its records' verdicts follow from theirs."""
    if transactions.members(judged).isEmpty():
        return judged
    facts = transactions.facts_frame(spark, transaction_facts.node_facts(store))
    transactions.resolve(judged, facts).write.parquet(spark_url(store.url(folder)))
    return transactions.settle(judged, spark.read.parquet(spark_url(store.url(folder))))


def across(
    judged: "DataFrame",
    settings: Settings,
    kinds: Collection[str],
    told: "DataFrame | None" = None,
    few: bool = True,
) -> "DataFrame":
    """Stage 2: what only shows between records of these broker kinds, and what stores outside have told
    (`evidence.answers`)."""
    from pyspark.sql import functions as F

    if "beside_the_letter" not in judged.columns:
        judged = judged.withColumn("beside_the_letter", F.lit(False))
    found = duplicates.find(judged, few)
    if "rocketmq" in kinds:
        found = found.unionByName(duplicates_rocketmq.find(judged))
    related = evidence.with_answers(judged.join(found, on="record_id", how="left"), told)
    advised = related.withColumns(advice.columns(settings.rules, settings.replay.max_laps))
    if "rocketmq" in kinds:
        advised = transactions.with_reasons(advised)
    return advised.withColumn("incident_id", F.lit(None).cast("string"))


def _with_bursts(
    store: Store, judged: "DataFrame", verdicts: "DataFrame", log: "DataFrame | None", folder: str
) -> "DataFrame":
    """Suppressed duplicates of one reconnect are one incident; its letters are told what they show."""
    if judged.filter("cause = 'suppressed_duplicate'").isEmpty():
        return verdicts
    marked = bursts.mark(verdicts, log)
    tables = {"incidents": bursts.incidents(marked, log), "bursts": bursts.table(marked)}
    for name, rows in tables.items():
        rows.write.parquet(spark_url(store.url(f"{folder}/{name}")))
    return marked


def _write(store: Store, verdicts: "DataFrame", folder: str) -> dict[str, int]:
    """Write the verdicts; counts by cause are taken on the way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation("causes")
    counts = [F.count_if(F.col("cause") == cause).alias(cause) for cause in CAUSES]
    shaped = verdicts.select(*(F.col(f.name).cast(f.dataType) for f in spark_schema(VERDICTS).fields))
    shaped.observe(seen, *counts).write.parquet(spark_url(store.url(folder)))
    return {cause: count for cause, count in seen.get.items() if count}
