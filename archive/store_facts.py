"""Snapshots of stores outside: `evidence/<store>/<time>-<n>.parquet`, and `<time>.json` written last.

A snapshot counts only when its document is there. An analysis reads the one that was taken for it;
the newest of each store is kept, to look it up later.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage.store import Store
from dlq.core.clock import iso, oldest_first
from dlq.core.store_facts import Fact

FACTS = pa.schema(
    [
        ("key", pa.string()),
        ("state", pa.string()),
        ("until", pa.timestamp("us", tz="UTC")),
        ("number", pa.int64()),
    ]
)
PART_ROWS, PART_CHARACTERS = 100_000, 2**25
"""In memory at once."""
_IN_USE = timedelta(days=1)
"""No analysis runs this long."""


@dataclass(frozen=True)
class Snapshot:
    """What one store said at one time, or why it said nothing."""

    name: str
    taken_at: int
    """Microseconds since the epoch."""
    rows: int = 0
    files: tuple[str, ...] = ()
    error: str | None = None


def write(store: Store, name: str, taken_at: int, facts: Iterable[Fact]) -> Snapshot:
    """Stream a store's facts into the archive. Raises ArchiveError, and whatever `facts` raises."""
    moment = datetime.fromtimestamp(taken_at / 1e6, UTC)
    stem = f"evidence/{name}/{moment:%Y%m%dT%H%M%S}-{taken_at % 1_000_000:06d}"
    files: list[str] = []
    rows = 0
    for part in _parts(facts):
        file = f"{stem}-{len(files):05d}.parquet"
        store.put(file, memoryview(_encode(part)))
        files.append(file)
        rows += len(part)
    snapshot = Snapshot(name, taken_at, rows, tuple(files))
    document = {"format": FORMAT_VERSION, **asdict(snapshot), "taken_at": iso(taken_at)}
    store.put(f"{stem}.json", json.dumps(document).encode())
    return snapshot


def _parts(facts: Iterable[Fact]) -> Iterator[list[Fact]]:
    part: list[Fact] = []
    characters = 0
    for fact in facts:
        part.append(fact)
        characters += len(fact.key) + len(fact.state)
        if len(part) >= PART_ROWS or characters >= PART_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def _encode(facts: list[Fact]) -> pa.Buffer:
    columns = zip(*facts, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FACTS, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=FACTS), sink, compression="zstd")
    return sink.getvalue()


def list_outdated(store: Store) -> Iterator[str]:
    """Yield files that no analysis can be reading any more: all but the newest snapshot of each store."""
    limit = f"{datetime.now(UTC) - _IN_USE:%Y%m%dT%H%M%S}"
    for folder, group in groupby(store.list("evidence/"), key=lambda name: name.rpartition("/")[0]):
        names = list(group)
        whole = [name.removesuffix(".json") for name in oldest_first(names) if name.endswith(".json")]
        old = [name for name in names if name < f"{folder}/{limit}"]
        yield from (name for name in old if not (whole and name.startswith(whole[-1])))
