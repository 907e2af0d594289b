"""An analysis: committed segments in, verdicts out.

1. Each letter by itself (`judging`): only letters of new segments, the others are kept from the analysis
   before.
2. Between letters: transactions, duplicates, stores outside, bursts. Spark groups and joins; what a group
   means is said in Python (`dlq.analyzers.groups`).
3. What was found changes verdicts, and the advice follows (`verdicts`).
4. Letters that died together are incidents.

`analysis.json` comes last: without it nothing counts.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.analyzers import topology
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
from dlq.analyzers.spark.files import (
    files_of,
    kept_in_memory,
    read_files,
    rows_of,
    write_table,
    written,
)
from dlq.analyzers.spark.judging import JUDGED, Part, Terms, judge_segments
from dlq.analyzers.spark.session import session
from dlq.analyzers.spark.transactions import node_facts
from dlq.archive import analyses, manifests
from dlq.archive.analyses import BURSTS, INCIDENTS, TABLES, VERDICTS, Analysis
from dlq.archive.housekeeping import steady_segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT
from dlq.archive.store import Store
from dlq.archive.store_facts import Snapshot
from dlq.core import clock
from dlq.core.clock import Clock
from dlq.core.errors import UsageError
from dlq.core.settings import Settings


def counted(store: Store, verdicts: Iterable[str], column: str) -> Counter[str | None]:
    """How often each value of a column is in these files of verdicts; one batch is in memory at a time."""
    found: Counter[str | None] = Counter()
    for values in _values(store, verdicts, column):
        names, counts = (part.to_pylist() for part in values.value_counts().flatten())
        found.update(dict(zip(names, counts, strict=True)))
    return found


def _values(store: Store, files: Iterable[str], column: str) -> Iterator[Any]:
    for name in files:
        with pq.ParquetFile(store.parquet(name), read_dictionary=[column]) as file:
            yield from (batch.column(0) for batch in file.iter_batches(columns=[column]))


def changed_since(
    store: Store, last: Analysis | None, causes: Mapping[str, int], verdicts: Iterable[str]
) -> dict[str, Any]:
    """`{since: analysis, causes: {cause: difference}, new_fingerprints: n}`; empty for the first one."""
    if last is None:
        return {}
    names = sorted({*causes, *last.causes})
    differences = {name: causes.get(name, 0) - last.causes.get(name, 0) for name in names}
    before = counted(store, last.tables["verdicts"], "fingerprint").keys()
    return {
        "since": last.analysis,
        "causes": {name: difference for name, difference in differences.items() if difference},
        "new_fingerprints": sum(before.isdisjoint(names) for names in _names(store, verdicts).values()),
    }


def _names(store: Store, files: Iterable[str]) -> dict[str, set[str]]:
    """Fingerprint -> itself and those that its letters had in the version before."""
    found: dict[str, set[str]] = {}
    for name in files:
        with pq.ParquetFile(store.parquet(name)) as file:
            for batch in file.iter_batches(columns=["fingerprint", "former_fingerprint"]):
                pairs = pa.Table.from_batches([batch]).group_by(batch.schema.names).aggregate([])
                for row in pairs.to_pylist():
                    if row["fingerprint"] is not None:
                        names = found.setdefault(row["fingerprint"], {row["fingerprint"]})
                        names.add(row["former_fingerprint"] or row["fingerprint"])
    return found


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_LETTERS = 20_000
FEW_LOG_BYTES = 16 << 20
"""Up to so many letters, and bytes of clients' logs, a session starts fast instead of running fast."""


class Asked(NamedTuple):
    """What an analysis is about."""

    store: Store
    settings: Settings
    since: int | None
    """Microseconds since the epoch: letters captured before are left out."""
    logs: Sequence[str]
    """Consumers' logs, joined with suppressed duplicates."""
    snapshots: Sequence[Snapshot]
    """What the stores of `[evidence.NAME]` said."""
    segments: Sequence[Manifest]
    """All that counts; with `since` more than is looked at."""
    name: str
    log_bytes: int = 0

    @property
    def folder(self) -> str:
        """Of its tables, in the archive."""
        return f"analyses/{self.name}"

    @property
    def chosen(self) -> list[Manifest]:
        """The segments that may hold letters of its time."""
        return [m for m in self.segments if self.since is None or m.created_at >= clock.iso(self.since)]

    @property
    def is_small(self) -> bool:
        """Whether a session should start fast instead of run fast."""
        return sum(m.rows for m in self.chosen) <= FEW_LETTERS and self.log_bytes <= FEW_LOG_BYTES


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
    what the stores of `[evidence.NAME]` said (`dlq.capture.external_stores.take`). Raises UsageError
    when nothing was captured, a log is not there, or Spark cannot start, ConfigError for a bad user rule;
    Busy when segments are being written again for long.
    """
    with steady_segments(store):
        started = time.monotonic()
        last = analyses.latest(store)
        segments = [m for m in manifests.every(store) if m.rows]
        logs = client_log.files(client_logs)
        if not segments:
            raise UsageError("nothing captured yet: dlq pull, or dlq import FILE")
        log_bytes = sum(Path(log).stat().st_size for log in logs)
        asked = Asked(store, settings, since, logs, snapshots, segments, _new_name(now(), last), log_bytes)
        terms = _terms(store, settings)
        key = terms.key()
        kept = _kept(asked, last, key)
        with session(settings.spark, master, asked.is_small, store.location) as spark:
            parts = [*kept, *_judge(spark, asked, terms, kept)]
            log_counts = _look_between(spark, asked, parts)
        analysis = _summary(asked, last, key, parts, log_counts)
        seconds = round(time.monotonic() - started, 3)
        analysis = replace(analysis, created_at=clock.iso(now()), seconds=seconds)
        analyses.commit(store, analysis)
        return analysis


def still_holds(store: Store, settings: Settings) -> Analysis | None:
    """The last analysis, if another one would say the same now: it is of all segments, under the same rules
    and facts. Of transactions time itself tells more, and so may stores outside."""
    last = analyses.latest(store)
    if last is None or settings.evidence:
        return None
    segments = {m.stem for m in manifests.every(store) if m.rows}
    is_same = last.rules_digest == _terms(store, settings).key() and segments == set(last.segments)
    is_same = is_same and last.extra.get("conditions") == _conditions(settings, None, ())
    has_pending = any(part["transactions"] for part in last.extra.get("parts", ()))
    return last if is_same and not has_pending else None


def _terms(store: Store, settings: Settings) -> Terms:
    return Terms(topology.facts(store, settings), settings.replay.max_laps, bool(settings.rules))


def _conditions(settings: Settings, since: int | None, logs: Sequence[str]) -> str:
    """Changes with all that an analysis was told beside the letters and what `Terms` holds."""
    told = [[asdict(rule) for rule in settings.rules], sorted(settings.evidence), since, *logs]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _summary(
    asked: Asked, last: Analysis | None, key: str, parts: Sequence[Part], log_counts: Mapping[str, Any]
) -> Analysis:
    store = asked.store
    tables = {table: written(store, f"{asked.folder}/{table}/") for table in TABLES}
    counts = counted(store, tables["verdicts"], "cause")
    causes = {cause: count for cause, count in counts.items() if cause is not None}
    return Analysis(
        analysis=asked.name,
        records=sum(causes.values()),
        causes=causes,
        seconds=0,
        created_at="",
        rules_digest=key,
        tables=tables,
        segments=tuple(m.stem for m in asked.chosen),
        extra={
            "parts": [part._asdict() for part in parts],
            "conditions": _conditions(asked.settings, asked.since, asked.logs),
            "broken": sum(part.broken for part in parts),
            "changed": changed_since(store, last, causes, tables["verdicts"]),
            "incidents": rows_of(store, tables["incidents"]),
            **log_counts,
            **stores.summary(asked.snapshots),
        },
    )


def _new_name(micros: int, last: Analysis | None) -> str:
    """Sorts after the last one, even when the clock was set back."""
    name = f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y%m%dT%H%M%S}-{micros % 1_000_000:06d}"
    return name if last is None or name > last.analysis else f"{last.analysis}.1"


def _kept(asked: Asked, last: Analysis | None, key: str) -> list[Part]:
    """Parts of the last analysis that still hold: made under the same key, of segments that all count, and
    their files are there."""
    if last is None or last.rules_digest != key:
        return []
    counting, present = {m.stem for m in asked.segments}, set(asked.store.list("analyses/"))
    parts = [Part(**part) for part in last.extra.get("parts", ())]
    return [part for part in parts if counting.issuperset(part.stems) and part.file in present]


def _judge(spark: "SparkSession", asked: Asked, terms: Terms, kept: Sequence[Part]) -> list[Part]:
    """Step 1 of the segments that no kept part has."""
    known = {stem for part in kept for stem in part.stems}
    fresh = [m for m in asked.chosen if m.stem not in known]
    conf = asked.settings.spark.conf
    files = files_of(asked.store, {**s3a.configuration(asked.store.location, conf), **conf})
    return judge_segments(spark, files, terms, fresh, f"{asked.folder}/judged")


def _look_between(spark: "SparkSession", asked: Asked, parts: Sequence[Part]) -> dict[str, dict[str, int]]:
    """Steps 2 to 4, and all tables written; what the clients' logs came to, where there are some."""
    letters = _letters(spark, asked, parts)
    log_counts = client_log.write(spark, asked.store, letters, asked.logs, f"{asked.folder}/client_log")
    is_burst = sum(part.suppressed for part in parts) or any(
        rule.cause == "suppressed_duplicate" for rule in asked.settings.rules
    )
    standing = _standing(spark, asked, letters) if is_burst else None
    found = verdicts.Found(
        shared=duplicates.shared(letters, asked.is_small),
        concluded=_transactions(spark, asked, letters) if sum(part.transactions for part in parts) else None,
        told=stores.answers(spark, asked.store, letters, asked.settings, asked.snapshots)
        if asked.snapshots
        else None,
        standing=None if standing is None else bursts.places(standing),
    )
    changed = verdicts.changes(letters, found, asked.settings.rules, asked.settings.replay.max_laps)
    judged = incidents.placed(verdicts.applied(letters, kept_in_memory(changed, asked.is_small)))
    looked_at = incidents.last_look(asked.store, asked.segments)
    slots = kept_in_memory(incidents.find_in(judged, _span(parts), looked_at), asked.is_small)
    _write_incidents(asked, slots, standing)
    write_table(asked.store, incidents.mark(judged, slots), VERDICTS, f"{asked.folder}/verdicts")
    spark.catalog.clearCache()
    return log_counts


def _span(parts: Sequence[Part]) -> int:
    """What the letters cover, in slots."""
    slots = [slot for part in parts for slot in (part.first_slot, part.last_slot) if slot is not None]
    return max(slots, default=0) - min(slots, default=0) + 1


def _letters(spark: "SparkSession", asked: Asked, parts: Sequence[Part]) -> "DataFrame":
    """All letters after step 1, and what the user's rules say of them."""
    from pyspark.sql import functions as F

    letters = read_files(spark, asked.store, [part.file for part in parts], JUDGED)
    if asked.since is not None:
        letters = letters.filter(F.col("captured_at") >= F.timestamp_micros(F.lit(asked.since)))
    if asked.is_small:
        letters = letters.coalesce(1)  # then nothing needs to be shuffled
    if not asked.settings.rules:
        return letters.withColumn("user_rule", F.lit(None).cast("string"))
    records = read_files(spark, asked.store, [m.segment for m in asked.chosen], SEGMENT)
    return user_rules.applied(letters, records, asked.settings.rules)


def _transactions(spark: "SparkSession", asked: Asked, letters: "DataFrame") -> "DataFrame":
    """RocketMQ's transactions, written as a table of their own, and what they make of their records."""
    folder = f"{asked.folder}/transactions"
    resolved = transactions.resolved(letters, node_facts(asked.store))
    write_table(asked.store, resolved, transactions.RESOLVED, folder)
    there = read_files(spark, asked.store, written(asked.store, f"{folder}/"), transactions.RESOLVED)
    return transactions.concluded_letters(letters, there)


def _standing(spark: "SparkSession", asked: Asked, letters: "DataFrame") -> "DataFrame":
    """Suppressed duplicates of one reconnect are one burst; its letters are told what their place shows."""
    log = client_log.read(spark, asked.store, f"{asked.folder}/client_log") if asked.logs else None
    standing = kept_in_memory(bursts.standing(letters, log), asked.is_small)
    write_table(asked.store, bursts.table(standing), BURSTS, f"{asked.folder}/bursts")
    return standing


def _write_incidents(asked: Asked, slots: "DataFrame", standing: "DataFrame | None") -> None:
    """Letters that died together, and bursts, in one table."""
    table = incidents.table(slots)
    every = table if standing is None else table.unionByName(bursts.incidents(standing))
    write_table(asked.store, every, INCIDENTS, f"{asked.folder}/incidents")
