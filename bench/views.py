"""ls, show, query and report over a million letters, as whole commands: bench/views.py [LETTERS]."""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter

import numpy as np
import pyarrow as pa

from dlq.analyzers import tables
from dlq.archive import analyses, manifests, schema, segments, views
from dlq.archive.storage.store import Store, open_store
from dlq.core.identity import digest_of_ids

ROWS = 10_000
BODY = 1024
RUNS = 5
CREATED = "2026-11-21T00:00:00Z"
CAUSES = ("application_error", "redelivery_exhausted", "poison_ack", "expired", "unknown", "overflow")
CLASSES = ("com.shop.StockException", "java.net.SocketTimeoutException", "java.lang.NullPointerException")
TIME = pa.timestamp("us", tz="UTC")


def main(letters: int) -> None:
    """Generate an archive, then time each command: the median of some runs, everything included."""
    with tempfile.TemporaryDirectory(prefix="dlq-bench-") as folder:
        store = open_store(os.path.join(folder, "archive"))
        first = generate(store, letters)
        print(f"{letters:,} letters of {BODY} B, median of {RUNS} runs, the start of the process included")
        for name, arguments in commands(first):
            print(f"{name:<28} {measure(folder, arguments):6.2f} s", flush=True)


def commands(record_id: str) -> list[tuple[str, list[str]]]:
    """What is timed: name and arguments."""
    return [
        ("(--version)", ["--version"]),
        ("ls --limit 50", ["ls", "--limit", "50"]),
        ("ls --where, --limit 50", ["ls", "--limit", "50", "--where", "cause = 'unknown'"]),
        ("show ID", ["show", record_id]),
        ("query, grouped", ["query", "select cause, source, count(*) from letters group by all"]),
        ("report", ["report"]),
        ("report --format html", ["report", "--out", "report.html"]),
    ]


def measure(folder: str, arguments: list[str]) -> float:
    """Median seconds of one command."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "dlq.cli", "-q", *arguments],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[RUNS // 2]


def generate(store: Store, letters: int, failures: int = 60) -> str:
    """An archive with an analysis of so many failures; returns the id of one of its letters."""
    chance = np.random.default_rng(1)
    kinds = _failures(chance, failures)
    verdicts, stems = [], []
    for place, start in enumerate(range(0, letters, ROWS)):
        ids = [hashlib.sha256(b"%d" % n).hexdigest()[:32] for n in range(start, min(letters, start + ROWS))]
        stem = f"20261121T000000-{place:06d}"
        name = f"segments/source=orders/date=2026-11-21/{stem}.parquet"
        segment = _segment(ids, start, chance)
        store.put(name, memoryview(segments.encode(segment)))
        manifests.write(
            store,
            manifests.Manifest(stem, "p", "orders", "copy", name, len(ids), digest_of_ids(ids), CREATED),
        )
        verdicts.append(_verdicts(segment, stem, kinds[chance.integers(failures, size=len(ids))]))
        stems.append(stem)
    table = pa.concat_tables(verdicts)
    file = "analyses/20261121T010000/verdicts/part-0.parquet"
    store.put(file, _as_analysis(table))
    causes = dict(Counter(table["cause"].to_pylist()))
    files = {"verdicts": (file,), "incidents": (), "transactions": (), **_write_sums(store, file)}
    analyses.commit(
        store, analyses.Analysis("20261121T010000", letters, causes, 1.0, CREATED, "", files, tuple(stems))
    )
    return ids[0]


def _write_sums(store: Store, file: str) -> dict[str, tuple[str]]:
    """As an analysis sums up its verdicts."""
    made = views.sum_up_verdicts(store, [file])
    for name, table in made.items():
        store.put(f"analyses/20261121T010000/{name}/part-0.parquet", _as_analysis(table))
    return {name: (f"analyses/20261121T010000/{name}/part-0.parquet",) for name in made}


def _as_analysis(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    tables.write(table, sink)
    return memoryview(sink.getvalue())


def _filled(wanted: pa.Schema, rows: int, columns: dict[str, object]) -> pa.Table:
    def column(field: pa.Field) -> pa.Array:
        value = columns.get(field.name)
        if value is None:
            return pa.nulls(rows, field.type)
        if isinstance(value, pa.ChunkedArray):
            return value.combine_chunks()
        return pa.array([value] * rows if isinstance(value, str | int) else value, field.type)

    return pa.Table.from_arrays([column(field) for field in wanted], schema=wanted)


def _segment(ids: list[str], start: int, chance: np.random.Generator) -> pa.Table:
    numbers = range(start, start + len(ids))
    died = pa.array(1_763_000_000_000_000 + np.arange(start, start + len(ids)) * 50_000).cast(TIME)
    bodies = [chance.bytes(BODY) for _ in ids]
    columns: dict[str, object] = {
        "record_id": ids, "source": "orders", "broker": "shop", "broker_kind": "rabbitmq", "mode": "copy",
        "dead_letter_queue": "orders.dlq", "message_id": [f"m-{n}" for n in numbers], "origin": "orders",
        "key": [f"m-{n}" for n in numbers], "captured_at": died, "dead_at": died, "attempts": 1,
        "failure_text": [f"com.shop.StockException: stock of {n}\n\tat Stock.java:42" for n in numbers],
        "headers": [[("x-first-death-reason", "rejected"), ("x-request-id", record_id)] for record_id in ids],
        "body": bodies, "body_size": BODY, "body_sha256": [hashlib.sha256(body).hexdigest() for body in bodies],
    }  # fmt: skip
    return _filled(schema.SEGMENT, len(ids), columns)


def _failures(chance: np.random.Generator, failures: int) -> np.ndarray:
    """Fingerprint, cause, class and advice of each: letters of one share them."""
    advice = ["replay", "check_first", "fix_first", "never"]
    columns = [
        np.array([f"{n:016x}" for n in range(failures)]),
        chance.choice(CAUSES, failures, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.05]),
        chance.choice(CLASSES, failures),
        chance.choice(advice, failures),
    ]
    return np.stack(columns, axis=1)


def _verdicts(segment: pa.Table, stem: str, kinds: np.ndarray) -> pa.Table:
    fingerprint, cause, exception, advice = kinds.T
    columns: dict[str, object] = {
        "source": "orders", "record_id": segment["record_id"].to_pylist(), "cause": cause,
        "mechanism": "framework", "rule": "spring-amqp", "evidence": "x-exception-message", "attempts": 3,
        "origin": "orders", "origin_kind": "queue", "exception_class": exception, "stem": stem,
        "exception_message": "stock is negative", "fingerprint": fingerprint, "advice": advice, "laps": 0,
        **{name: segment[name] for name in analyses.BESIDE.names if name != "stem"},
    }  # fmt: skip
    return _filled(analyses.IN_FILES, len(segment), columns)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
