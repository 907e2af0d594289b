"""How long retention and compaction take: many small segments of cron runs, and few large ones.

python bench/retain.py [SEGMENTS ROWS]...
"""

import os
import resource
import sys
import tempfile
import time
from hashlib import sha256

import pyarrow as pa

from dlq.archive import housekeeping, manifests, segments
from dlq.archive.storage.store import LocalStore
from dlq.core.clock import now
from dlq.core.record import Record
from dlq.core.settings import Retain

CASES = ((1000, 100), (100, 10_000))
BODY_BYTES = 300


def letter(segment: int, row: int) -> Record:
    """A letter with a body that does not compress."""
    return Record(
        record_id=sha256(f"{segment}-{row}".encode()).hexdigest()[:32],
        source="orders",
        broker="shop",
        broker_kind="rabbitmq",
        dead_letter_queue="orders.dlq",
        captured_at=now(),
        headers={"x-first-death-queue": "orders", "row": str(row)},
        body=os.urandom(BODY_BYTES),
        body_size=BODY_BYTES,
    )


def fill(store: LocalStore, count: int, rows: int) -> pa.Table:
    """An archive of settled segments; returns a ledger that has confirmed every second letter."""
    for number in range(count):
        records = [letter(number, row) for row in range(rows)]
        stem = f"20261121T000000-{number:05d}"
        manifests.settle(store, segments.commit(store, "orders", stem, 1, "drain", records, {}))
    ids = [i for m in manifests.list_committed(store) for i in segments.record_ids(store, m).to_pylist()][::2]
    return pa.table({"record_id": ids, "state": ["confirmed"] * len(ids)})


def measure(count: int, rows: int) -> None:
    """One line: what there was, what is left, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        replays = fill(store, count, rows)
        started = time.monotonic()
        work = housekeeping.look(store, Retain(max_age="0s"), replays, compact=True)
        looked = time.monotonic()
        housekeeping.do(store, work, lambda: replays)
        done = time.monotonic()
        print(
            f"{count} segments of {rows} letters: {work.segments_after} afterwards, "
            f"{work.choice.removed:,} letters removed; looked {looked - started:.1f} s, "
            f"done {done - looked:.1f} s ({count * rows / (done - looked):,.0f} letters/s)",
            flush=True,
        )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    for case in list(zip(given[::2], given[1::2], strict=True)) or CASES:
        measure(*case)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")
