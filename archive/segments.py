"""Segments and the first two steps of the commit protocol: segment, then manifest.

Both names appear only when their bytes are durable; the third step, the acknowledgement, is the caller's.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import PurePath
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.archive import manifests
from dlq.archive.manifests import Manifest
from dlq.archive.schema import check_cells, check_columns, to_table
from dlq.archive.storage import parquet
from dlq.archive.storage.parquet import readable
from dlq.archive.storage.store import Store
from dlq.core.clock import iso, now
from dlq.core.columns import column
from dlq.core.errors import ArchiveError
from dlq.core.identity import digest_of_ids
from dlq.core.record import Record

_REPEATING = [
    "source",
    "broker",
    "broker_kind",
    "broker_version",
    "dead_letter_queue",
    "pull_id",
    "mode",
    "origin",
    "exchange",
    "routing_key",
]

PARQUET: Mapping[str, Any] = {
    "compression": "zstd",
    "use_dictionary": _REPEATING,
    "write_statistics": [*_REPEATING, "record_id", "captured_at", "dead_at"],
}
"""How pyarrow writes a segment."""


_BATCH_ROWS = 1_000
_LARGE = 64 * 2**20
"""Bytes of a file that is not held in memory as a whole."""


def segment_name(source: str, stem: str, micros: int) -> str:
    """Return segments/source=S/date=D/<stem>.parquet; the configuration has checked the source's name."""
    return (
        f"segments/source={source}/date={datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%d}/{stem}.parquet"
    )


def encode(table: pa.Table) -> pa.Buffer:
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **PARQUET)
    return sink.getvalue()


def commit(
    store: Store,
    source: str,
    pull_id: str,
    number: int,
    mode: str,
    records: Sequence[Record],
    checkpoint: Mapping[str, int],
    settled: bool = False,
    broker: str = "",
) -> Manifest:
    """Write `records` as segment `<pull>-<n>` and its manifest, durably, in this order.

    Without records only the manifest is written: it carries the checkpoint. `settled`: the broker knows of
    no acknowledgement, and the checkpoint is all that is needed. Raises ArchiveError.
    """
    stem, moment = f"{pull_id}-{number:05d}", now()
    name = segment_name(source, stem, moment) if records else ""
    if records:
        store.put(name, memoryview(encode(to_table(records))))
    manifest = Manifest(
        stem=stem,
        pull_id=pull_id,
        source=source,
        mode=mode,
        segment=name,
        rows=len(records),
        digest=digest_of_ids(column(records, "record_id")),
        created_at=iso(moment),
        checkpoint=dict(checkpoint),
        settled=settled,
        broker=broker,
    )
    manifests.write(store, manifest)
    return manifest


def record_ids(store: Store, manifest: Manifest) -> pa.ChunkedArray:
    """Return the record ids of one segment, in row order, as an Arrow string column."""
    if not manifest.segment:
        return pa.chunked_array([], pa.string())
    with readable(manifest.segment):
        return read(store, manifest, ["record_id"])["record_id"]


def read(store: Store, manifest: Manifest, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a segment. Raises OSError, pa.ArrowException (`readable`)."""
    table = open_segment(store, manifest, columns).read(columns=list(columns))
    check_cells(table)
    return table


def open_segment(store: Store, manifest: Manifest, columns: Sequence[str]) -> pq.ParquetFile:
    """Return a segment that has these columns, as they should be. Raises OSError, pa.ArrowException
    (`readable`)."""
    return _file(store, manifest.segment, columns, manifest.rows)


def open_hashed(
    store: Store, manifest: Manifest, columns: Sequence[str], hashes: bool = True
) -> tuple[pq.ParquetFile, str | None]:
    """Open as `open_segment`, with the digest of the bytes that are read; None of a large file, or unless it
    `hashes`."""
    source = store.parquet(manifest.segment)
    if not hashes or source.seek(0, os.SEEK_END) > _LARGE:
        return _open_file(source, columns, manifest.rows), None
    source.seek(0)
    content = source.read()
    return _open_file(pa.BufferReader(content), columns, manifest.rows), sha256(content).hexdigest()


def batches(
    store: Store, segment: str, columns: Sequence[str], most_rows: int = parquet.MOST_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a segment in row order, a few rows at a time: bodies may be large."""
    with readable(segment):
        file = _file(store, segment, columns, most_rows)
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
            check_cells(batch)
            yield batch


def _file(store: Store, segment: str, columns: Sequence[str], most_rows: int) -> pq.ParquetFile:
    return _open_file(store.parquet(segment), columns, most_rows)


def _open_file(source: "pa.NativeFile | IO[bytes]", columns: Sequence[str], most_rows: int) -> pq.ParquetFile:
    file = parquet.open_parquet(source, most_rows)
    check_columns(file.schema_arrow, columns)
    return file


def purged_ids(store: Store, manifest: Manifest) -> pa.ChunkedArray:
    """Return the ids of the letters that retention has removed from one segment."""
    if not manifest.purged_ids:
        return pa.chunked_array([], pa.string())
    with readable(manifest.purged_ids):
        file = _file(store, manifest.purged_ids, ["record_id"], manifest.purged)
        found = file.read(columns=["record_id"])
        check_cells(found)
        return found["record_id"]


_LEFT_BY_CRASHES = 3
"""A crash leaves one segment, and what is begun next removes it."""


def list_uncommitted(store: Store, source: str) -> list[str]:
    """List segments of `source` without a manifest: of a commit under way, or what a crash left.

    Segments are listed first, so that one whose manifest comes meanwhile is not taken for one of them.
    """
    stored = store.list(f"segments/source={source}/")
    committed = {PurePath(name).stem for name in store.list("manifests/") if name.endswith(".json")}
    return [name for name in stored if PurePath(name).stem not in committed]


def remove_uncommitted(store: Store, source: str) -> int:
    """Remove what a crash left of `source`; the broker delivers it again. The caller holds its lock. Raises
    ArchiveError for more than that: manifests were lost then, and the letters may lie nowhere else."""
    manifest_of = {name: manifests.name_of(PurePath(name).stem) for name in list_uncommitted(store, source)}
    listed_late = store.get_many([*manifest_of.values()])  # no object store has to list all that it has
    orphans = [name for name, manifest in manifest_of.items() if manifest not in listed_late]
    if len(orphans) > _LEFT_BY_CRASHES:
        raise ArchiveError(
            f"{len(orphans)} segments in segments/source={source} have no manifest, more than a crash "
            "leaves, so none is removed: restore the folder manifests, or move these files away"
        )
    for name in orphans:
        if store.filesystem is not None:
            manifests.void(store, PurePath(name).stem)
        store.delete(name)
    return len(orphans)
