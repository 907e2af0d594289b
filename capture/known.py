"""Which letters the archive holds of a source, and which of them the broker may deliver again.

Redelivered letters are matched as a multiset: of three byte-identical letters that a crash left
unsettled, three deliveries are taken as those, and a fourth is a new letter with the next ordinal.
Ids are kept as sorted pairs of 64-bit integers, 21 bytes per letter, so that ten million fit in memory.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import compaction, manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.core.columns import column
from dlq.core.identity import ordinal_id
from dlq.core.record import Record

_Words = npt.NDArray[np.uint64]
SEEN = -1
"""The owner of archived letters that the broker cannot deliver again: settled, or matched already."""
_OWN = -2
"""The owner of letters that this reading has written itself."""
_MERGE_AT = 200_000


def _words(record_ids: Iterable[str]) -> _Words:
    raw = bytes.fromhex("".join(record_ids))
    return np.frombuffer(raw, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def _without_properties(store: Store, manifest: Manifest) -> set[str]:
    found: set[str] = set()
    for batch in segments.batches(store, manifest.segment, ["record_id", "properties"], manifest.rows):
        lengths = pc.fill_null(pc.list_value_length(_entries(batch["properties"])), 0)
        found.update(batch["record_id"].filter(pc.equal(lengths, 0)).to_pylist())
    return found


def _entries(maps: pa.MapArray) -> pa.ListArray:
    return maps.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))


class Known:
    """The ids of one source. `unsettled` are the manifests whose letters may come again, by owner number."""

    def __init__(self, store: Store, source: str, unique_ids: bool = False) -> None:
        """Reads the record ids of all the source's segments, and of what retention has removed from them."""
        self.unsettled: list[Manifest] = []
        self._unique_ids = unique_ids
        self._told_less: dict[int, set[str]] = {}
        """Owner -> ids of its letters that were archived without properties."""
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
            owners.append(np.full(len(purged), SEEN, np.int32))
        self._sort(words, owners)

    def _owners(self, manifest: Manifest, ids: pa.ChunkedArray) -> npt.NDArray[np.int32]:
        if manifest.settled:
            return np.full(len(ids), SEEN, np.int32)
        self.unsettled.append(manifest)
        settled = pc.is_in(ids, pa.array(manifest.settled_ids, pa.string())).to_numpy(zero_copy_only=False)
        return np.where(settled, SEEN, len(self.unsettled) - 1).astype(np.int32)

    def _sort(self, words: Sequence[_Words], owners: Sequence[npt.NDArray[np.int32]]) -> None:
        pairs = np.concatenate([np.empty((0, 2), np.uint64), *words])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self._high, self._low = pairs[order, 0], pairs[order, 1]
        self._owner = np.concatenate([np.empty(0, np.int32), *owners])[order]

    def sort_out(self, records: Sequence[Record]) -> tuple[Sequence[Record], dict[int, dict[str, Record]]]:
        """Which of the delivered `records` are new (with their final ids), and which were known:
        owner number in `unsettled` -> record id -> the record as it came now."""
        ids = column(records, "record_id")
        distinct = set(ids)
        if len(distinct) == len(ids) and self._recent.isdisjoint(distinct) and not self._archived(ids).any():
            self._remember(ids)
            return records, {}
        new: list[Record] = []
        matched: dict[int, dict[str, Record]] = {}
        for record in records:
            known_id, owner = self._place(record.record_id)
            if owner is None:
                new.append(record if known_id == record.record_id else record._replace(record_id=known_id))
                self._remember([known_id])
            else:
                matched.setdefault(owner, {})[known_id] = record
        return new, matched

    def truer(self, store: Store, owner: int, delivered: Mapping[str, Record]) -> list[Record]:
        """Those known letters of an unsettled manifest that tell more now than when they were archived: the
        archive has no properties of them, as the protocol hid what another one shows."""
        telling = {record_id: one for record_id, one in delivered.items() if one.properties}
        if owner < 0 or not telling:
            return []
        if owner not in self._told_less:
            self._told_less[owner] = _without_properties(store, self.unsettled[owner])
        untold = self._told_less[owner]
        return [one._replace(record_id=key) for key, one in telling.items() if key in untold]

    def replace(self, store: Store, owner: int, truer: Sequence[Record]) -> None:
        """Let the archive hold these letters as they came now. Raises ArchiveError."""
        self.unsettled[owner] = compaction.with_letters(store, self.unsettled[owner], truer)
        self._told_less[owner] -= {record.record_id for record in truer}

    def _place(self, first_id: str) -> tuple[str, int | None]:
        """(final id, owner of the unsettled letter that it is, or None for a new letter)."""
        ordinal = self._next_ordinal.get(first_id, 0)
        while True:
            record_id = ordinal_id(first_id, ordinal)
            index = None if record_id in self._recent else self._index(record_id)
            if record_id not in self._recent and index is None:
                return record_id, None
            owner = _OWN if index is None else int(self._owner[index])
            if self._unique_ids:
                return record_id, owner
            ordinal += 1
            self._next_ordinal[first_id] = ordinal
            if owner >= 0:
                self._owner[index] = SEEN
                return record_id, owner

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
