"""An analysis: committed segments in, verdicts out, by the engine that suits their number.

1. Each letter by itself (`judging`): only letters of new segments, the others are kept from the analysis
   before.
2. Between letters: transactions, duplicates, stores outside, bursts (`groups`).
3. What was found changes verdicts, and the advice follows.
4. Letters that died together are incidents.

`analysis.json` comes last: without it nothing counts. An engine (`plain`, `spark.engine`) does the four steps
and writes the tables; it knows neither brokers nor causes.
"""

import glob
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from dlq.analyzers import topology
from dlq.analyzers.asked import Asked, Done
from dlq.analyzers.judging import Part, Terms
from dlq.archive import analyses, manifests, parquet
from dlq.archive.analyses import TABLES, Analysis, written
from dlq.archive.housekeeping import steady_segments
from dlq.archive.store import Store
from dlq.archive.store_facts import Snapshot
from dlq.core import clock, documents
from dlq.core.clock import Clock, iso
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.settings import Settings

Engine = Literal["auto", "plain", "spark"]
Run = Callable[[Asked, Terms, Sequence[Part]], Done]
"""An engine: what to analyze, under which terms, and the parts that are judged already."""


def counted(store: Store, verdicts: Iterable[str], column: str) -> Counter[str | None]:
    """How often each value of a column is in these files of verdicts; one batch is in memory at a time."""
    found: Counter[str | None] = Counter()
    for values in _values(store, verdicts, column):
        names, counts = (part.to_pylist() for part in values.value_counts().flatten())
        found.update(dict(zip(names, counts, strict=True)))
    return found


def _values(store: Store, files: Iterable[str], column: str) -> Iterator[Any]:
    for name in files:
        with parquet.readable(name):
            file = parquet.opened(store.parquet(name), read_dictionary=[column])
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
        with parquet.readable(name):
            file = parquet.opened(store.parquet(name))
            for batch in file.iter_batches(columns=["fingerprint", "former_fingerprint"]):
                pairs = pa.Table.from_batches([batch]).group_by(batch.schema.names).aggregate([])
                for row in pairs.to_pylist():
                    if row["fingerprint"] is not None:
                        names = found.setdefault(row["fingerprint"], {row["fingerprint"]})
                        names.add(row["former_fingerprint"] or row["fingerprint"])
    return found


def analyze(
    store: Store,
    settings: Settings,
    master: str | None = None,
    since: int | None = None,
    now: Clock = clock.now,
    client_logs: Sequence[str] = (),
    snapshots: Sequence[Snapshot] = (),
    engine: Engine = "auto",
    only_new: bool = False,
) -> Analysis:
    """Judge everything captured (since a time in microseconds) and commit a new analysis.

    `client_logs` are paths and globs of consumers' logs, joined with suppressed duplicates; `snapshots` are
    what the stores of `[evidence.NAME]` said (`dlq.capture.external_stores.take`); `only_new`: the last
    analysis is returned where another one would say the same. Raises UsageError
    when nothing was captured, a log is not there, or Spark cannot start, ConfigError for a bad user rule;
    Busy when segments are being written again for long.
    """
    with steady_segments(store):
        if only_new and (known := still_holds(store, settings)):
            return known
        started = time.monotonic()
        last = analyses.latest(store)
        segments = [m for m in manifests.every(store) if m.rows]
        logs = log_files(client_logs)
        if not segments:
            raise UsageError("nothing captured yet: dlq pull, or dlq import FILE")
        asked = Asked(store, settings, since, logs, snapshots, segments, _new_name(now(), last))
        terms = _terms(store, settings)
        key = terms.key()
        done = _engine_for(asked, engine, master)(asked, terms, _kept(asked, last, key))
        analysis = _summary(asked, last, key, done)
        seconds = round(time.monotonic() - started, 3)
        analysis = replace(analysis, created_at=clock.iso(now()), seconds=seconds)
        analyses.commit(store, analysis)
        return analysis


def is_for_spark(settings: Settings, letters: int, master: str | None = None) -> bool:
    """Whether Spark takes over unless an engine is named: a cluster is, or the letters are many."""
    names_cluster = master is not None or not settings.spark.master.startswith("local")
    return names_cluster or letters >= settings.analysis.spark_from


def _engine_for(asked: Asked, engine: Engine, master: str | None) -> Run:
    if engine == "plain" and master is not None:
        raise UsageError("--master is for Spark: leave it out, or --engine plain")
    letters = sum(m.rows for m in asked.chosen)
    if engine == "spark" or (engine == "auto" and is_for_spark(asked.settings, letters, master)):
        from dlq.analyzers.spark import engine as spark

        return partial(spark.run, master=master)
    from dlq.analyzers import plain

    return plain.run


def still_holds(store: Store, settings: Settings) -> Analysis | None:
    """The last analysis, if another one would say the same now: it is of all segments, under the same rules
    and facts. Of transactions time itself tells more, and so may stores outside."""
    last = analyses.latest(store)
    if last is None or settings.evidence:
        return None
    segments = {m.stem for m in manifests.every(store) if m.rows}
    is_same = last.rules_digest == _terms(store, settings).key() and segments == set(last.segments)
    is_same = is_same and last.extra.get("conditions") == _conditions(settings, None, ())
    has_pending = any(part.get("transactions") for part in last.extra.get("parts", ()))
    return last if is_same and not has_pending else None


def _terms(store: Store, settings: Settings) -> Terms:
    return Terms(topology.facts(store, settings), settings.replay.max_laps, bool(settings.rules))


def _conditions(settings: Settings, since: int | None, logs: Sequence[str]) -> str:
    """Changes with all that an analysis was told beside the letters and what `Terms` holds."""
    told = [[asdict(rule) for rule in settings.rules], sorted(settings.evidence), since, *logs]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _summary(asked: Asked, last: Analysis | None, key: str, done: Done) -> Analysis:
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
            "parts": [part._asdict() for part in done.parts],
            "conditions": _conditions(asked.settings, asked.since, asked.logs),
            "broken": sum(part.broken for part in done.parts),
            "changed": changed_since(store, last, causes, tables["verdicts"]),
            "incidents": _rows_of(store, tables["incidents"]),
            **({} if done.client_log is None else {"client_log": dict(done.client_log)}),
            **_evidence(asked.snapshots),
        },
    )


def _rows_of(store: Store, names: Sequence[str]) -> int:
    """How many rows these Parquet files have; their footers tell."""
    rows = 0
    for name in names:
        with parquet.readable(name):
            rows += int(parquet.opened(store.parquet(name)).metadata.num_rows)
    return rows


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
    try:
        parts = [documents.built(Part, part) for part in last.extra.get("parts", ())]
    except ValueError as error:
        raise ArchiveError(f"{analyses.name_of(last.analysis)} in the archive is damaged: {error}") from error
    return [part for part in parts if counting.issuperset(part.stems) and part.file in present]


def _evidence(taken: Sequence[Snapshot]) -> dict[str, dict[str, dict[str, object]]]:
    """{"evidence": {store: what it gave, or why it gave nothing}}, or nothing where none was asked."""
    said: dict[str, dict[str, object]] = {}
    for one in taken:
        error = {} if one.error is None else {"error": one.error}
        said[one.name] = {"taken_at": iso(one.taken_at), "rows": one.rows, **error}
    return {"evidence": said} if said else {}


def log_files(patterns: Sequence[str]) -> list[str]:
    """The files that paths and globs mean (gz too). Raises UsageError when one of them means nothing."""
    found: list[str] = []
    for pattern in patterns:
        names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        names = [name for name in names if Path(name).is_file()]
        if not names:
            raise UsageError(f"--client-log {pattern}: there is no such file")
        found += names
    hidden = next((name for name in found if Path(name).name.startswith((".", "_"))), None)
    if hidden is not None:
        raise UsageError(
            f"--client-log {hidden}: Spark reads no file whose name begins with . or _: rename it"
        )
    return list(dict.fromkeys(str(Path(name).resolve()) for name in found))
