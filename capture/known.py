"""Which letters the archive holds of a source, and which of them the broker may deliver again.

Redelivered letters are matched as a multiset: of three byte-identical letters that a crash left
unsettled, three deliveries are taken as those, and a fourth is a new letter with the next ordinal.
An id is only a name, which a file that is imported may carry, and content can be changed in the archive: what
is delivered is a letter that the archive holds where it has the same content, and never one that came by
import. Else it gets the next ordinal, too.
Ids are kept as sorted pairs of 64-bit integers, 21 bytes per letter, so that ten million fit in memory.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import compaction, manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import to_records
from dlq.archive.store import Store
from dlq.core.brokers import kind_of, resolve
from dlq.core.columns import column
from dlq.core.identity import Told, content_digest, ordinal_id, told_of
from dlq.core.record import Record

_Words = npt.NDArray[np.uint64]
SEEN = -1
"""The owner of letters that the broker cannot deliver again: settled, matched already, or purged."""
_OWN = -2
"""The owner of letters that this reading has written itself."""
_IMPORTED = -3
"""The owner of letters that came by import, for a reading that is none."""
_MERGE_AT = 200_000
_MOST_TOLD = 200_000
"""Letters whose digests are held, of those segments from which letters came again last."""
_CONTENT = ["record_id", "broker_kind", "headers", "raw_properties", "properties", "body"]


def _words(record_ids: Iterable[str]) -> _Words:
    raw = bytes.fromhex("".join(record_ids))
    return np.frombuffer(raw, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def _told(record: Record) -> Told:
    told: Told = resolve(kind_of(record.broker_kind).told or _TOLD)(record)
    return told


_TOLD = f"{told_of.__module__}:{told_of.__name__}"


def _told_by(store: Store, manifest: Manifest) -> dict[str, Told]:
    return {
        record.record_id: _told(record)
        for batch in segments.batches(store, manifest.segment, _CONTENT, manifest.rows)
        for record in to_records(pa.Table.from_batches([batch]))
    }


def _named(record_id: str, told: Told) -> str:
    """An id and content as one name, which is remembered beside the id where ids are not made of content."""
    return content_digest(record_id.encode(), *(str(part).encode() for part in told))


class Known:
    """The ids of one source. `manifests` are those whose letters may come again, by owner number."""

    def __init__(self, store: Store, source: str, unique_ids: bool = False, is_import: bool = False) -> None:
        """Reads the record ids of all the source's segments, and of what retention has removed from them."""
        self.manifests: list[Manifest] = []
        self.unlike = 0
        """New letters that have the id of one that is archived, and are another."""
        self._store, self._unique_ids, self._is_import = store, unique_ids, is_import
        self._told: dict[int, dict[str, Told]] = {}
        """Owner -> record id -> what is archived of it."""
        self._delivered: dict[str, Told] = {}
        """Record id -> what has come of it now, of the known letters that were sorted out last."""
        self._recent: set[str] = set()
        self._next_ordinal: dict[str, int] = {}
        words: list[_Words] = []
        owners: list[npt.NDArray[np.int32]] = []
        for manifest in manifests.list_committed(store, source):
            ids = segments.record_ids(store, manifest)
            words.append(_words(ids.to_pylist()))
            owners.append(self._owners(manifest, ids))
            purged = segments.purged_ids(store, manifest)
            words.append(_words(purged.to_pylist()))
            owners.append(np.full(len(purged), _IMPORTED if self._is_foreign(manifest) else SEEN, np.int32))
        self._sort(words, owners)

    def _is_foreign(self, manifest: Manifest) -> bool:
        return manifest.mode == manifests.BY_IMPORT and not self._is_import

    def _owners(self, manifest: Manifest, ids: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        if self._is_foreign(manifest):
            return np.full(len(ids), _IMPORTED, np.int32)
        if manifest.settled and not self._unique_ids:
            return np.full(len(ids), SEEN, np.int32)
        self.manifests.append(manifest)
        settled = pc.is_in(ids, pa.array(manifest.settled_ids, pa.string())).to_numpy(zero_copy_only=False)
        out = settled & (not self._unique_ids)
        return np.where(out, SEEN, len(self.manifests) - 1).astype(np.int32)

    def _sort(self, words: Sequence[_Words], owners: Sequence[npt.NDArray[np.int32]]) -> None:
        pairs = np.concatenate([np.empty((0, 2), np.uint64), *words])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self._high, self._low = pairs[order, 0], pairs[order, 1]
        self._owner = np.concatenate([np.empty(0, np.int32), *owners])[order]

    def sort_out(self, records: Sequence[Record]) -> tuple[Sequence[Record], dict[int, dict[str, Record]]]:
        """Which of the delivered `records` are new (with their final ids), and which were known:
        owner number in `manifests` -> record id -> the record as it came now. Raises ArchiveError."""
        ids = column(records, "record_id")
        distinct = set(ids)
        if len(distinct) == len(ids) and self._recent.isdisjoint(distinct) and not self._archived(ids).any():
            self._remember(ids)
            if self._is_import:
                self._remember([_named(record.record_id, _told(record)) for record in records])
            return records, {}
        new: list[Record] = []
        matched: dict[int, dict[str, Record]] = {}
        self._delivered = {}
        for record in records:
            told = _told(record)
            known_id, owner = self._place(record.record_id, told)
            if owner is None:
                new.append(record if known_id == record.record_id else record._replace(record_id=known_id))
                self._remember([known_id, _named(known_id, told)] if self._is_import else [known_id])
            else:
                matched.setdefault(owner, {})[known_id] = record
                self._delivered[known_id] = told
        return new, matched

    def truer(self, owner: int, delivered: Mapping[str, Record]) -> list[Record]:
        """Those known letters of an unsettled manifest that tell more now than when they were archived: the
        protocol hid what another one shows, or something else could not be had. Raises ArchiveError."""
        if owner < 0 or self.manifests[owner].settled or self._is_import:
            return []
        archived, now = self._archived_as(owner), self._delivered
        deeper = (record_id for record_id in delivered if archived[record_id].depth < now[record_id].depth)
        return [delivered[record_id]._replace(record_id=record_id) for record_id in deeper]

    def replace(self, owner: int, truer: Sequence[Record]) -> None:
        """Let the archive hold these letters as they came now. Raises ArchiveError."""
        self.manifests[owner] = compaction.with_letters(self._store, self.manifests[owner], truer)
        self._told.pop(owner, None)

    def _place(self, first_id: str, told: Told) -> tuple[str, int | None]:
        """(final id, owner of the letter that it is, or None for a new letter)."""
        ordinal, is_unlike = self._next_ordinal.get(first_id, 0), False
        while True:
            record_id = ordinal_id(first_id, ordinal)
            index = None if record_id in self._recent else self._index(record_id)
            if record_id not in self._recent and index is None:
                self.unlike += is_unlike
                return record_id, None
            owner = _OWN if index is None else int(self._owner[index])
            ordinal += 1
            is_it = self._is_of(owner, record_id, told)
            is_unlike = is_unlike or not is_it
            if self._unique_ids:
                if is_it:
                    return record_id, owner
                continue
            self._next_ordinal[first_id] = ordinal
            if owner >= 0 and is_it:
                self._owner[index] = SEEN
                return record_id, owner

    def _is_of(self, owner: int, record_id: str, told: Told) -> bool:
        """Whether a delivery is of the letter that has this id. Of a purged one no more is known; and ids
        that a reading has made itself, as all do but a file's, are made of content."""
        if owner >= 0:
            return self._archived_as(owner)[record_id].is_same(told)
        if owner == _OWN and self._is_import:
            name = _named(record_id, told)
            return name in self._recent or self._index(name) is not None
        return owner != _IMPORTED

    def _archived_as(self, owner: int) -> Mapping[str, Told]:
        if owner not in self._told:
            while self._told and sum(map(len, self._told.values())) > _MOST_TOLD:
                del self._told[next(iter(self._told))]
            self._told[owner] = _told_by(self._store, self.manifests[owner])
        return self._told[owner]

    def _archived(self, ids: Sequence[str]) -> npt.NDArray[np.bool_]:
        if not len(self._high):
            return np.zeros(len(ids), np.bool_)
        wanted = _words(ids)[:, 0]
        places = np.minimum(np.searchsorted(self._high, wanted), len(self._high) - 1)
        found: npt.NDArray[np.bool_] = self._high[places] == wanted
        return found

    def _index(self, record_id: str) -> int | None:
        high, low = (int(part, 16) for part in (record_id[:16], record_id[16:]))
        start, end = (
            np.searchsorted(self._high, np.uint64(high), "left"),
            np.searchsorted(self._high, np.uint64(high), "right"),
        )
        found = np.flatnonzero(self._low[start:end] == np.uint64(low))
        return int(start + found[0]) if len(found) else None

    def _remember(self, ids: Sequence[str]) -> None:
        self._recent.update(ids)
        if len(self._recent) >= _MERGE_AT:
            words = _words(self._recent)
            old = np.stack([self._high, self._low], axis=1)
            self._sort([old, words], [self._owner, np.full(len(words), _OWN, np.int32)])
            self._recent.clear()
