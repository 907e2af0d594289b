"""dlq analyze against the same verdicts in pandas and a DuckDB scan and grouping, in one run.

    python bench/analyze.py [RECORDS ...]      (default: 1000000 5000000)

Spark's time is a whole first analysis, the start of the JVM and the duplicates among it. pandas
decides cause, mechanism, attempts, exception and fingerprint of the same letters; its causes must be
the same. DuckDB reads the same columns and groups by cause: the least that anything could do. The
last line adds one segment to the archive and analyzes again: old segments are not judged again.
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

from dlq.analyzers.job import analyze
from dlq.archive import manifests
from dlq.archive.store import LocalStore
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


def timed(work: Callable[[], Mapping[str, int]]) -> tuple[float, dict[str, int]]:
    """Seconds, and the counts by cause."""
    start = time.perf_counter()
    counts = work()
    return time.perf_counter() - start, dict(counts)


def in_duckdb(files: list[str]) -> Mapping[str, int]:
    import duckdb

    return dict(duckdb.execute(CAUSE_SQL, [files]).fetchall())


def compare(records: int) -> dict[str, Any]:
    """All three on an archive of so many letters."""
    folder = tempfile.mkdtemp(prefix="dlq-bench-")
    try:
        store = LocalStore(folder)
        letters.fill(store, 0, records)
        files = [store.url(m.segment) for m in manifests.every(store)]
        spark, causes = timed(lambda: analyze(store, Settings()).causes)
        pandas, same = timed(lambda: verdicts(files))
        duckdb, also = timed(lambda: in_duckdb(files))
        assert causes == same == also, (causes, same, also)
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
