"""An analysis: committed segments in, verdicts out, by the engine that suits their number.

1. Each letter by itself (`classification`): only letters of new segments, the others are kept from the
   analysis before.
2. Between letters: transactions, duplicates, stores outside, bursts (`groups`).
3. What was found changes verdicts, and the advice follows.
4. Letters that died together are incidents.

`analysis.json` comes last: without it nothing counts. An engine (`plain`, `spark.engine`) does the four steps
and writes the tables; it knows neither brokers nor causes.
"""

import glob
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlq.analyzers import tables, topology
from dlq.analyzers.asked import Asked, Done
from dlq.analyzers.classification import CLASSIFIED, Part, Terms
from dlq.analyzers.conditions import asks_for_time
from dlq.analyzers.groups.client_log import counts as counts_of_states
from dlq.analyzers.groups.incidents import is_ongoing
from dlq.archive import analyses, manifests
from dlq.archive.analyses import KEPT, TABLES, Analysis, list_written
from dlq.archive.housekeeping import steady_segments
from dlq.archive.storage import parquet
from dlq.archive.storage.store import Store
from dlq.archive.store_facts import Snapshot
from dlq.core import clock, documents
from dlq.core.clock import Clock, iso
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.runtime.regular_files import why_not
from dlq.core.settings import Settings

Engine = Literal["auto", "plain", "spark"]
_UNREADABLE = (".7z", ".deflate", ".lz4", ".snappy", ".tgz", ".xz", ".zip", ".zst")
"""How logs end of which no line can be read."""
SUMMED_FROM, _MOST_SUMS = 10_000, 200_000
"""Letters from which on sums are kept with an analysis: to walk through fewer takes a few milliseconds. And
how many sums at most: who looks reads all of them."""
_Run = Callable[[Asked, Terms, Sequence[Part]], Done]
"""An engine: what to analyze, under which terms, and the parts that are classified already."""


def _count_values(
    store: Store, files: Iterable[str], column: str, table: str = "verdicts"
) -> Counter[str | None]:
    """Return how often each value of a column is in these files of a table; one batch at a time."""
    found: Counter[str | None] = Counter()
    for values in _values(store, files, column, table):
        names, counts = (part.to_pylist() for part in values.value_counts().flatten())
        found.update(dict(zip(names, counts, strict=True)))
    return found


def _values(store: Store, files: Iterable[str], column: str, table: str) -> Iterator[Any]:
    for name in files:
        with parquet.readable(name):
            file = analyses.open_table(store, name, TABLES[table], [column])
            yield from (batch.column(0) for batch in file.iter_batches(columns=[column]))


def changed_since(
    store: Store, last: Analysis | None, causes: Mapping[str, int], verdicts: Iterable[str]
) -> dict[str, Any]:
    """`{since: analysis, causes: {cause: difference}, new_fingerprints: n}`; empty for the first one, and
    where the last one cannot be read."""
    if last is None:
        return {}
    try:
        before = _count_values(store, last.tables["verdicts"], "fingerprint")
    except ArchiveError:
        return {}
    names = sorted({*causes, *last.causes})
    differences = {name: causes.get(name, 0) - last.causes.get(name, 0) for name in names}
    return {
        "since": last.analysis,
        "causes": {name: difference for name, difference in differences.items() if difference},
        "new_fingerprints": len(
            _count_values(store, verdicts, "fingerprint").keys() - before.keys() - {None}
        ),
    }


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
    """Classify everything captured (since a time in microseconds) and commit a new analysis.

    `client_logs` are paths and globs of consumers' logs, joined with suppressed duplicates; `snapshots` are
    what the stores of `[evidence.NAME]` said (`dlq.capture.external_stores.take`); `only_new`: the last
    analysis is returned where another one would say the same. Raises UsageError
    when nothing was captured, a log is not there, or Spark cannot start, ConfigError for a bad user rule;
    Busy when segments are being written again for long.
    """
    with steady_segments(store):
        if only_new and (known := still_holds(store, settings)):
            return known
        task = _task(store, settings, since, log_files(client_logs), snapshots, now)
        kept, done = task.kept, None
        if engine == "auto" and not names_cluster(settings, master) and is_for_spark(settings, task.letters):
            kept, done = _by_touched(task)
            if done is None and kept is not task.kept:
                task = task.anew()
        if done is None:
            task, done = _whole(task, _engine_for(task.asked, engine, master), kept)
        return _commit(task, done, now)


def analyze_touched(store: Store, settings: Settings) -> Analysis | None:
    """Return what `analyze` does, where the archive holds so many letters that it may be for Spark, as long
    as new letters touch few: in this process. None: it takes a whole analysis. Raises ArchiveError,
    ConfigError."""
    with steady_segments(store):
        if known := still_holds(store, settings):
            return known
        task = _task(store, settings, None, (), (), clock.now)
        _, done = _by_touched(task)
        return done and _commit(task, done, clock.now)


class _Task(NamedTuple):
    """An analysis that is going to be made."""

    started: float
    asked: Asked
    terms: Terms
    key: str
    last: Analysis | None
    kept: Sequence[Part]

    @property
    def letters(self) -> int:
        return sum(m.rows for m in self.asked.chosen)

    def anew(self) -> "_Task":
        """Return it under another name: what was written before it was given up is of no analysis."""
        return self._replace(asked=self.asked._replace(name=f"{self.asked.name}.1"))


def _task(
    store: Store,
    settings: Settings,
    since: int | None,
    logs: Sequence[str],
    snapshots: Sequence[Snapshot],
    now: Clock,
) -> _Task:
    started = time.monotonic()
    last = analyses.latest(store)
    segments = [m for m in manifests.list_committed(store) if m.rows]
    if not segments:
        raise UsageError("the archive is empty: run dlq pull, or dlq import FILE")
    asked = Asked(store, settings, since, logs, snapshots, segments, _new_name(now(), last))
    terms = _terms(store, settings)
    key = terms.key()
    return _Task(started, asked, terms, key, last, _reusable_parts(asked, last, key))


def _by_touched(task: _Task) -> tuple[Sequence[Part], Done | None]:
    """Return what the next engine may keep, and what was done, if the new letters touch few. What is kept of
    the last analysis is a help: where it is damaged, all is classified anew."""
    from dlq.analyzers import incremental, plain

    asked, last, kept = task.asked, task.last, task.kept
    fresh = sum(m.rows for m in asked.fresh(kept))
    if last is None or not _continues(asked, last, kept) or fresh >= asked.settings.analysis.spark_from:
        return kept, None
    classified = plain.classify(asked, task.terms, kept)
    try:
        return [*kept, *classified], incremental.run(asked, last, kept, classified)
    except ArchiveError:
        return classified, None


def _whole(task: _Task, engine: _Run, kept: Sequence[Part]) -> tuple[_Task, Done]:
    try:
        return task, engine(task.asked, task.terms, kept)
    except analyses.Damaged:
        task = task.anew()
        return task, engine(task.asked, task.terms, ())


def _continues(asked: Asked, last: Analysis, kept: Sequence[Part]) -> bool:
    """Return whether the last analysis was told the same as this one, of all segments that it knew."""
    said = _conditions(asked.settings, asked.since, asked.logs)
    is_same = last.extra.get("conditions") == said and "slots" in last.tables and "nodes" in last.extra
    is_whole = {stem for part in kept for stem in part.stems} == set(last.segments)
    beside = asked.since is not None or asked.logs or asked.settings.evidence
    return is_same and is_whole and not beside and not any(map(asks_for_time, asked.settings.rules))


def _commit(task: _Task, done: Done, now: Clock) -> Analysis:
    analysis = _summary(task.asked, task.last, task.key, done)
    seconds = round(time.monotonic() - task.started, 3)
    analysis = replace(analysis, created_at=clock.iso(now()), seconds=seconds)
    analyses.commit(task.asked.store, analysis)
    return analysis


def is_for_spark(settings: Settings, letters: int, master: str | None = None) -> bool:
    """Return whether a whole analysis is Spark's where none is named: a cluster is, or letters are many."""
    return names_cluster(settings, master) or letters >= settings.analysis.spark_from


def names_cluster(settings: Settings, master: str | None = None) -> bool:
    """Return whether somebody wants Spark to run elsewhere."""
    return master is not None or not settings.spark.master.startswith("local")


def _engine_for(asked: Asked, engine: Engine, master: str | None) -> _Run:
    if engine == "plain" and master is not None:
        raise UsageError("--master needs Spark; leave out --master, or --engine plain")
    letters = sum(m.rows for m in asked.chosen)
    if engine == "spark" or (engine == "auto" and is_for_spark(asked.settings, letters, master)):
        from dlq.analyzers.spark import engine as spark

        return partial(spark.run, master=master)
    from dlq.analyzers import plain

    return plain.run


def still_holds(store: Store, settings: Settings) -> Analysis | None:
    """Return the last analysis, if another one would say the same now: it is of all segments, under the same
    rules and facts, and what was ongoing still is, which ends with a pull that brings nothing, too. Of
    transactions and to some rules time itself tells more, and so may stores outside. Raises ConfigError."""
    last = analyses.latest(store)
    if last is None or settings.evidence or any(map(asks_for_time, settings.rules)):
        return None
    segments = [m for m in manifests.list_committed(store) if m.rows]
    is_same = last.rules_digest == _terms(store, settings).key()
    is_same = is_same and {m.stem for m in segments} == set(last.segments)
    is_same = is_same and last.extra.get("conditions") == _conditions(settings, None, ())
    has_pending = any(part.get("transactions") for part in last.extra.get("parts", ()))
    if not is_same or has_pending:
        return None
    looked_at = topology.last_look(store, segments)
    return last if all(is_ongoing(end, looked_at) for end in _ends_of_ongoing(store, last)) else None


def _ends_of_ongoing(store: Store, last: Analysis) -> Iterator[int]:
    """Yield when each of its ongoing incidents had its last letter; none where that cannot be read."""
    columns = [_values(store, last.tables["incidents"], name, "incidents") for name in ("end", "ongoing")]
    with suppress(ArchiveError):
        for ends, ongoing in zip(*columns, strict=True):
            yield from tables.values(ends.filter(ongoing))


def _terms(store: Store, settings: Settings) -> Terms:
    return Terms(topology.facts(store, settings), settings.replay.max_laps, bool(settings.rules))


def _conditions(settings: Settings, since: int | None, logs: Sequence[str]) -> str:
    """Return a digest of all that an analysis was told beside the letters and what `Terms` holds."""
    told = [[asdict(rule) for rule in settings.rules], sorted(settings.evidence), since, *logs]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _write_sums(asked: Asked, done: Done) -> None:
    """Sum up the verdicts of many letters, for who looks at them."""
    from dlq.analyzers import plain
    from dlq.archive import views

    if sum(m.rows for m in asked.chosen) < SUMMED_FROM:
        return
    files = _files_of(asked, done, "verdicts")
    made = views.sum_up_verdicts(asked.store, files)
    if made["sums"].num_rows <= _MOST_SUMS:
        for name, table in made.items():
            plain.write(asked, name, table)


def _files_of(asked: Asked, done: Done, table: str) -> tuple[str, ...]:
    return (*done.taken_over.get(table, ()), *list_written(asked.store, f"{asked.folder}/{table}/"))


def _summary(asked: Asked, last: Analysis | None, key: str, done: Done) -> Analysis:
    store = asked.store
    _write_sums(asked, done)
    tables = {table: _files_of(asked, done, table) for table in (*TABLES, *KEPT)}
    counts = _count_values(store, tables["verdicts"], "cause")
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
            "nodes": topology.digests(store),
            **_of_logs(asked, tables["client_log"]),
            **_evidence(asked.snapshots),
        },
    )


def _of_logs(asked: Asked, files: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return how many letters and lines of clients' logs have each state; nothing where none was asked."""
    if not asked.logs:
        return {}
    return {"client_log": counts_of_states(_count_values(asked.store, files, "state", "client_log"))}


def _rows_of(store: Store, names: Sequence[str]) -> int:
    """Return how many rows these Parquet files have; their footers tell."""
    rows = 0
    for name in names:
        with parquet.readable(name):
            rows += int(parquet.open_parquet(store.parquet(name)).metadata.num_rows)
    return rows


def _new_name(micros: int, last: Analysis | None) -> str:
    """Return a name that sorts after the last one; where the clock was set back since, by the next second."""
    moment, end = datetime.fromtimestamp(micros // 1_000_000, UTC), f"-{micros % 1_000_000:06d}"
    name = f"{moment:{clock.STAMP}}{end}"
    if last is None or name > last.analysis:
        return name
    try:
        of_last = datetime.strptime(last.analysis[:15], clock.STAMP).replace(tzinfo=UTC)
        return f"{of_last + timedelta(seconds=1):{clock.STAMP}}{end}"
    except (ValueError, OverflowError):  # no dlq has given that name
        return f"{last.analysis}.1"


def _reusable_parts(asked: Asked, last: Analysis | None, key: str) -> list[Part]:
    """Return the parts of the last analysis that still hold: made under the same key, of segments that all
    count, and their files are there."""
    if last is None or last.rules_digest != key:
        return []
    counting, present = {m.stem: m for m in asked.segments}, set(asked.store.list("analyses/"))
    try:
        parts = [documents.build(Part, part) for part in last.extra.get("parts", ())]
    except ValueError as error:
        raise ArchiveError(f"{analyses.name_of(last.analysis)} in the archive is damaged: {error}") from error
    there = (part for part in parts if counting.keys() >= set(part.stems) and part.file in present)
    return [part for part in there if _is_whole(asked.store, part, sum(counting[s].rows for s in part.stems))]


def _is_whole(store: Store, part: Part, letters: int) -> bool:
    """Return whether a kept file is a table of so many classified letters, as its footer says."""
    try:
        with parquet.readable(part.file):
            return int(analyses.open_table(store, part.file, CLASSIFIED, ()).metadata.num_rows) == letters
    except ArchiveError:
        return False


def _evidence(taken: Sequence[Snapshot]) -> dict[str, dict[str, dict[str, object]]]:
    """{"evidence": {store: what it gave, or why it gave nothing}}, or nothing where none was asked."""
    said: dict[str, dict[str, object]] = {}
    for one in taken:
        error = {} if one.error is None else {"error": one.error}
        said[one.name] = {"taken_at": iso(one.taken_at), "rows": one.rows, **error}
    return {"evidence": said} if said else {}


def log_files(patterns: Sequence[str]) -> list[str]:
    """Return the files that paths and globs mean (gz and bz2, too). Raises UsageError when one of them means
    nothing, or a path something else than a file, or one is packed in another way."""
    found: list[str] = []
    for pattern in patterns:
        if os.path.exists(pattern):  # Path's raises for a name that is too long
            names = [pattern]
            if why := why_not(Path(pattern).stat().st_mode):
                raise UsageError(f"--client-log {pattern}: {why}; check the file")
        else:
            names = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not names:
            raise UsageError(f"--client-log {pattern}: there is no such file; check the path")
        found += names
    packed = next((name for name in found if name.lower().endswith(_UNREADABLE)), None)
    if packed is not None:
        raise UsageError(
            f"--client-log {packed}: it is packed, and neither by gzip nor by bzip2; give it unpacked"
        )
    hidden = next((name for name in found if Path(name).name.startswith((".", "_"))), None)
    if hidden is not None:
        raise UsageError(
            f"--client-log {hidden}: Spark reads no file whose name begins with . or _: rename it"
        )
    return list(dict.fromkeys(str(Path(name).resolve()) for name in found))
