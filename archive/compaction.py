"""Rewriting segments: many small ones as one, and without the letters that retention removes.

First the new segment, then its manifest: from then on the old segments, which it `replaces`, no longer
count, and they are deleted. A crash before leaves a segment without a manifest, which the next pull or
`sweep` removes; a crash after leaves segments that do not count, which `sweep` removes.

The ids of removed letters stay in `purged/`: a letter that comes again is known, and another one with
the same bytes gets an id of its own instead of a removed letter's, and of its entry in the ledger.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add, gt, lt

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlq.archive import manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT, to_table
from dlq.archive.storage import parquet
from dlq.archive.storage.store import Store
from dlq.core.clock import from_iso, now
from dlq.core.errors import ArchiveError
from dlq.core.identity import digest_of_ids
from dlq.core.record import Record

_LARGEST = (100_000, 32 * 2**20, 1_000_000)
"""A compacted segment has about so many letters, stored bytes, or ids of removed letters, at most."""
_ROW_GROUP_ROWS = 10_000
_ROW_GROUP_BYTES = 32 * 2**20

_Removals = Mapping[str, pa.Array]
"""Manifest stem -> record ids of the letters to remove from its segment."""


def size_of(store: Store, manifest: Manifest) -> int:
    """Return the stored bytes of a segment."""
    if not manifest.segment:
        return 0
    with store.open(manifest.segment) as file:
        return file.seek(0, os.SEEK_END)


def groups(
    store: Store,
    committed: Sequence[Manifest],
    removals: _Removals,
    compact: bool,
    unread: Collection[str],
) -> list[list[Manifest]]:
    """Return which segments of one source to write again, each group as one segment. `unread`: the stems of
    those that the latest analysis has not read."""
    alone = [[manifest] for manifest in committed if manifest.stem in removals]
    if not compact:
        return alone
    small = [m for m in committed if all(map(lt, _measure(store, m), (most // 2 for most in _LARGEST)))]
    merged = [group for kind in _kinds(small, unread) for group in _fill_groups(store, kind)]
    together = {manifest.stem for group in merged for manifest in group}
    return merged + [group for group in alone if group[0].stem not in together]


def _kinds(small: Sequence[Manifest], unread: Collection[str]) -> Iterator[list[Manifest]]:
    """Group segments of one mode and broker, equally settled and read: these say what a pull may conclude,
    where a replay goes, and which letters no analysis has classified."""
    kinds: dict[tuple[object, ...], list[Manifest]] = {}
    for manifest in sorted(small, key=lambda manifest: manifest.created_at):
        kind = (manifest.mode, manifest.settled, manifest.broker, manifest.stem in unread)
        kinds.setdefault(kind, []).append(manifest)
    yield from kinds.values()


def _measure(store: Store, manifest: Manifest) -> tuple[int, ...]:
    """Return what a segment has of each that `_LARGEST` bounds."""
    return (manifest.rows, size_of(store, manifest), manifest.purged)


def _fill_groups(store: Store, kind: Sequence[Manifest]) -> Iterator[list[Manifest]]:
    group: list[Manifest] = []
    total = nothing = (0,) * len(_LARGEST)
    for manifest in kind:
        measure = _measure(store, manifest)
        if any(map(gt, map(add, total, measure), _LARGEST)):
            yield from [group] if len(group) > 1 else []
            group, total = [], nothing
        group.append(manifest)
        total = tuple(map(add, total, measure))
    if len(group) > 1:
        yield group


def rewrite(store: Store, old: Sequence[Manifest], removals: _Removals) -> Manifest:
    """Write the letters of `old`, which are of one kind, as one segment; without those to remove.

    The caller holds the source's lock. Raises ArchiveError, also for a segment that is not what its
    manifest says: damage is not written again under a new digest.
    """
    first, last = old[0], max(manifest.created_at for manifest in old)
    stem = f"{manifests.new_pull_id()}-00001"
    content, kept, gone = _content(store, old, removals)
    name = segments.segment_name(first.source, stem, from_iso(last) or now()) if kept else ""
    if kept:
        store.put(name, memoryview(content))
    manifest = Manifest(
        stem=stem,
        pull_id=max(manifest.pull_id for manifest in old),  # that says until when letters were looked for
        source=first.source,
        mode=first.mode,
        segment=name,
        rows=len(kept),
        digest=digest_of_ids(kept),
        created_at=last,
        checkpoint=manifests.furthest_checkpoint(old),
        settled=first.settled,
        settled_ids=() if first.settled else tuple(sorted({i for m in old for i in m.settled_ids})),
        replaces=tuple(dict.fromkeys(stem for m in old for stem in (*m.replaces, m.stem))),
        purged=len(gone),
        purged_ids=_write_purged(store, first.source, stem, gone),
        broker=first.broker,
    )
    manifests.write(store, manifest)
    for replaced in old:
        _delete(store, replaced)
    return manifest


def with_letters(store: Store, old: Manifest, letters: Sequence[Record]) -> Manifest:
    """Write a segment again with these of its letters, which tell more of the same ones, in the place of the
    archived ones; returns its manifest. The caller holds the source's lock. Raises ArchiveError."""
    stem = f"{manifests.new_pull_id()}-00001"
    table = _read_checked(store, old)
    told = to_table(letters)
    stays = pc.invert(pc.is_in(table["record_id"], value_set=told["record_id"].combine_chunks()))
    whole = pa.concat_tables([table.filter(stays), told.select(table.column_names).cast(table.schema)])
    name = segments.segment_name(old.source, stem, from_iso(old.created_at) or now())
    store.put(name, memoryview(segments.encode(whole)))
    manifest = replace(
        old,
        stem=stem,
        segment=name,
        digest=digest_of_ids(whole["record_id"].to_pylist()),
        replaces=tuple(dict.fromkeys((*old.replaces, old.stem))),
    )
    manifests.write(store, manifest)
    _delete(store, old)
    return manifest


def sweep(store: Store, source: str) -> None:
    """Delete what crashes have left: segments without a manifest, and replaced ones. The caller holds the
    source's lock. Raises ArchiveError."""
    segments.remove_uncommitted(store, source)
    committed = list(manifests.list_committed(store, source))
    replaced = {stem for manifest in committed for stem in manifest.replaces}
    for name in store.list("manifests/"):
        if name.rpartition("/")[2].removesuffix(".json") in replaced:
            _delete(store, manifests.load(store, name))
    named = {manifest.purged_ids for manifest in committed}
    for name in store.list(f"purged/source={source}/"):
        if name not in named:
            store.delete(name)


def _delete(store: Store, manifest: Manifest) -> None:
    """Delete a segment, the manifest last: while it is there, `sweep` finds the files."""
    for name in (manifest.segment, manifest.purged_ids, manifests.name_of(manifest.stem)):
        if name:
            store.delete(name)


def _content(
    store: Store, old: Sequence[Manifest], removals: _Removals
) -> tuple[pa.Buffer, list[str], list[str]]:
    """Return the new segment's bytes, the ids in it, and the ids of all letters ever removed from `old`."""
    sink = pa.BufferOutputStream()
    kept: list[str] = []
    gone = [i for manifest in old for i in segments.purged_ids(store, manifest).to_pylist()]

    def letters() -> Iterator[pa.Table]:
        for manifest in old:
            table = _read_checked(store, manifest)
            leaves = pc.is_in(table["record_id"], value_set=removals.get(manifest.stem, _NOBODY))
            gone.extend(table["record_id"].filter(leaves).to_pylist())
            stays = table.filter(pc.invert(leaves))
            kept.extend(stays["record_id"].to_pylist())
            yield stays

    with pq.ParquetWriter(sink, SEGMENT, **segments.PARQUET) as writer:
        for row_group in _row_groups(letters()):
            writer.write_table(row_group)
    return sink.getvalue(), kept, gone


_NOBODY = pa.array([], pa.string())


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables' rows in groups of a size that reads well."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= _ROW_GROUP_ROWS or size >= _ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def _read_checked(store: Store, manifest: Manifest) -> pa.Table:
    if not manifest.segment:
        return SEGMENT.empty_table()
    with parquet.readable(manifest.segment):
        table = segments.read(store, manifest, SEGMENT.names).select(SEGMENT.names)
    if digest_of_ids(table["record_id"].to_pylist()) != manifest.digest:
        raise ArchiveError(f"segment {manifest.stem} is not what its manifest says; see dlq verify")
    return table


def _write_purged(store: Store, source: str, stem: str, gone: Sequence[str]) -> str:
    if not gone:
        return ""
    name = f"purged/source={source}/{stem}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"record_id": pa.array(gone, pa.string())}), sink, compression="zstd")
    store.put(name, memoryview(sink.getvalue()))
    return name
