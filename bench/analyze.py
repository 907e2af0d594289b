"""dlq analyze against the same verdicts in pandas and a DuckDB scan and grouping, in one run.

    python bench/analyze.py [RECORDS ...]      (default: 1000000 5000000)

Spark's time is a whole first analysis, from the start of the JVM to the Parquet files of the verdicts.
pandas decides every column of the same letters' verdicts and writes them too; record by record they must
be the same. DuckDB reads the same columns and groups by cause: the least that anything could do. The
last figure is for one more segment: old segments are not judged again.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import letters
from in_pandas import verdicts

from dlq.analyzers.spark.job import analyze
from dlq.archive import manifests
from dlq.archive.analyses import latest
from dlq.archive.store import LocalStore, Store
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


def verdicts_of(store: Store) -> list[str]:
    """The files of the newest analysis's verdicts."""
    analysis = latest(store)
    assert analysis is not None
    return [store.url(name) for name in analysis.tables["verdicts"]]


def different(ours: list[str], theirs: list[str]) -> int:
    """Letters that two sets of verdicts do not say the same of."""
    import duckdb

    found = duckdb.execute(DIFFERENT_SQL, [ours, ours, theirs, theirs]).fetchone()
    assert found is not None
    return int(found[0])


def compare(records: int) -> dict[str, Any]:
    """All three on an archive of so many letters."""
    folder = tempfile.mkdtemp(prefix="dlq-bench-")
    try:
        store = LocalStore(folder)
        letters.fill(store, 0, records)
        files = [store.url(m.segment) for m in manifests.every(store)]
        spark, causes = timed(lambda: analyze(store, Settings()).causes)
        ours = verdicts_of(store)
        theirs = f"{folder}/pandas.parquet"
        pandas, same = timed(lambda: verdicts(files, theirs))
        duckdb, also = timed(lambda: in_duckdb(files))
        assert causes == same == also, (causes, same, also)
        assert (wrong := different(ours, [theirs])) == 0, f"{wrong} letters are judged differently"
        letters.fill(store, records, records + letters.ROWS)
        again, _ = timed(lambda: analyze(store, Settings()).causes)
    finally:
        shutil.rmtree(folder)
    rounded = {"spark": spark, "pandas": pandas, "duckdb": duckdb, "spark_after_new_pull": again}
    return {"records": records, **{name: round(seconds, 1) for name, seconds in rounded.items()}}


def main() -> None:
    for records in map(int, sys.argv[1:] or ("1000000", "5000000")):
        result = compare(records)
        ratios = {
            f"spark/{other}": round(result["spark"] / result[other], 2) for other in ("pandas", "duckdb")
        }
        print(json.dumps({**result, **ratios}), flush=True)


if __name__ == "__main__":
    main()
