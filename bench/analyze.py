"""dlq analyze against the same verdicts in pandas and a DuckDB scan and grouping, in one run.

    python bench/analyze.py [RECORDS ...]      (default: 1000000 5000000)
    python bench/analyze.py small              (1,000 letters of three brokers and 20,000 of one, cold)

Spark's time is a whole first analysis, from the start of the JVM to the Parquet files of the verdicts.
pandas decides every column of the same letters' verdicts and writes them too; record by record they must
be the same. DuckDB reads the same columns and groups by cause: the least that anything could do. The
last figure is for one more pull of 2,000 letters: old segments are not classified again. Each has a process of its
own; CPU is that of the process and its children, MiB their most memory together.

`small` runs each thing in a process of its own, five times in turns: a first analysis in the process, and what
nobody can go below: the imports and a loop over the rules.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any, NamedTuple

import psutil

from dlq.archive import manifests
from dlq.archive.analyses import latest
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings

CAUSE_SQL = """
    SELECT cause, count(*) FROM (
        SELECT CASE WHEN map_contains(headers, 'x-exception-message') OR map_contains(headers, 'MT-Reason')
                      OR map_contains(headers, 'NServiceBus.FailedQ') OR map_contains(headers, 'x-error')
                    THEN 'application_error'
                    WHEN deaths[1].reason = 'rejected' OR deaths[2].reason = 'rejected' THEN 'poison_ack'
                    WHEN deaths[1].reason = 'expired' THEN 'expired'
                    WHEN deaths[1].reason = 'maxlen' THEN 'overflow'
                    WHEN deaths[1].reason = 'delivery_limit' THEN 'redelivery_exhausted'
                    ELSE 'unknown' END AS cause
        FROM read_parquet(?)) GROUP BY cause
"""

THEIRS = "pandas.parquet"
MORE = 2_000
"""Letters of one more pull."""
ROUNDS = 5
LETTERS = 1_000

COMPARED = (
    "cause", "mechanism", "rule", "evidence", "stale_evidence", "attempts", "origin_kind", "origin",
    "exception_class", "exception_message", "exception_family", "fingerprint", "fingerprint_version",
    "duplicate_kind", "first_of_group", "incident_id", "laps", "advice", "advice_reason",
)  # fmt: skip
"""Columns of verdicts; a duplicate group is known by its first letter, its name is each side's own."""

_HASHED = f"""
    SELECT record_id, hash({", ".join(COMPARED)}) AS said FROM read_parquet(?) LEFT JOIN (
        SELECT duplicate_group, min(record_id) AS first_of_group FROM read_parquet(?)
        WHERE duplicate_group IS NOT NULL GROUP BY duplicate_group) USING (duplicate_group)
"""
DIFFERENT_SQL = f"""
    SELECT count(*) FROM ({_HASHED}) AS one FULL JOIN ({_HASHED}) AS other USING (record_id)
    WHERE one.said IS DISTINCT FROM other.said
"""


def timed(work: Callable[[], Mapping[str, int]]) -> tuple[float, dict[str, int]]:
    """Seconds, and the counts by cause."""
    start = time.perf_counter()
    counts = work()
    return time.perf_counter() - start, dict(counts)


def in_duckdb(files: list[str]) -> Mapping[str, int]:
    import duckdb

    return dict(duckdb.execute(CAUSE_SQL, [files]).fetchall())


def by_dlq(folder: str) -> Mapping[str, int]:
    """An analysis by the engine that suits the number of letters; its counts by cause."""
    from dlq.analyzers.analysis import analyze

    return analyze(LocalStore(folder), Settings()).causes


def different(ours: list[str], theirs: list[str]) -> int:
    """Letters that two sets of verdicts do not say the same of."""
    import duckdb

    found = duckdb.execute(DIFFERENT_SQL, [ours, ours, theirs, theirs]).fetchone()
    assert found is not None
    return int(found[0])


def compare(records: int) -> dict[str, Any]:
    """All three on an archive of so many letters."""
    import letters

    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as folder:
        store = LocalStore(folder)
        letters.fill(store, 0, records)
        spent = {"spark": measured("analyze", folder)}
        analysis = latest(store)
        assert analysis is not None
        ours = [store.url(name) for name in analysis.tables["verdicts"]]
        spent["pandas"] = measured("pandas", folder)
        files = [store.url(m.segment) for m in manifests.list_committed(store)]
        duckdb, causes = timed(lambda: in_duckdb(files))
        assert causes == analysis.causes, (causes, analysis.causes)
        assert (wrong := different(ours, [f"{folder}/{THEIRS}"])) == 0, (
            f"{wrong} letters are classified differently"
        )
        letters.fill(store, records, records + MORE)
        spent["spark_after_new_pull"] = measured("analyze", folder)
    said = {name: one._asdict() for name, one in spent.items()}
    each = {"cpu_us_a_letter": round(spent["spark"].cpu / records * 1e6, 1)}
    return {"records": records, **said, **each, "duckdb": round(duckdb, 1)}


def by_pandas(folder: str) -> None:
    """The same verdicts as a file of the archive's folder."""
    from in_pandas import verdicts

    store = LocalStore(folder)
    verdicts([store.url(m.segment) for m in manifests.list_committed(store)], f"{folder}/{THEIRS}")


def bare(folder: str) -> None:
    """What nobody can go below: the imports, and a loop over the rules."""
    import duckdb  # noqa: F401

    from dlq.analyzers import letters
    from dlq.analyzers.rules import Facts, judge

    store = LocalStore(folder)
    for manifest in manifests.list_committed(store):
        for group in letters.read(store.parquet(manifest.segment)):
            for letter in group.letters:
                judge(letter, Facts())


ALONE: Mapping[str, Callable[[str], object]] = {
    "analyze": by_dlq,
    "bare": bare,
    "pandas": by_pandas,
}
"""What runs in a process of its own."""
SMALL = ("analyze", "bare")


class Spent(NamedTuple):
    """What a process and its children took."""

    seconds: float
    cpu: float
    mib: int
    """At most, of all together; 0 where that was not looked at."""


def measured(name: str, folder: str, interval: float = 0.25) -> Spent:
    """One of ALONE on an archive, in a process of its own."""
    start = time.perf_counter()
    spent: dict[int, float] = {}
    most = 0
    with subprocess.Popen([sys.executable, __file__, "alone", name, folder]) as process:
        while process.poll() is None:
            cpu, size = look_at(process.pid)
            spent |= cpu
            most = max(most, size)
            time.sleep(interval)
    assert process.returncode == 0, name
    seconds = time.perf_counter() - start
    return Spent(round(seconds, 2), round(sum(spent.values()), 2), most >> 20)


def look_at(pid: int) -> tuple[dict[int, float], int]:
    """Seconds of CPU of a process and its children so far, by pid; and the bytes that are theirs alone, with
    their part of what they share."""
    found, size = {}, 0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
            size += process.memory_full_info().pss
    return found, size


def measured_on_copy(name: str, archive: str) -> Spent:
    """The same on a copy of an archive, for short ones."""
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as folder:
        shutil.copytree(archive, folder, dirs_exist_ok=True)
        return measured(name, folder, 0.05)


def small() -> None:
    """First analyses of few letters, each in a cold process, beside what nobody can go below."""
    import letters

    for number, fill in ((LETTERS, letters.fill_mixed), (20_000, letters.fill)):
        with tempfile.TemporaryDirectory(prefix="dlq-bench-") as archive:
            fill(LocalStore(archive), 0, number)
            rounds = [{thing: measured_on_copy(thing, archive) for thing in SMALL} for _ in range(ROUNDS)]
        for thing in SMALL:
            seconds, cpu, _ = zip(*(one[thing] for one in rounds), strict=True)
            said = {"seconds": round(median(seconds), 2), "cpu": round(median(cpu), 2)}
            print(json.dumps({"letters": number, "what": thing, **said}), flush=True)
        ratio = median(one["analyze"].seconds / one["bare"].seconds for one in rounds)
        print(json.dumps({"letters": number, "analyze/bare": round(ratio, 2)}), flush=True)


def main() -> None:
    if sys.argv[1:2] == ["alone"]:
        ALONE[sys.argv[2]](sys.argv[3])
        return
    if sys.argv[1:] == ["small"]:
        small()
        return
    for records in map(int, sys.argv[1:] or ("1000000", "5000000")):
        result = compare(records)
        ratio = {
            f"spark/pandas {of}": round(result["spark"][of] / result["pandas"][of], 2)
            for of in ("seconds", "cpu")
        }
        print(json.dumps({**result, **ratio}), flush=True)


if __name__ == "__main__":
    main()
