"""Which letters the archive holds of a source, and which of them the broker may deliver again.

Redelivered letters are matched as a multiset: of three byte-identical letters that a crash left
unsettled, three deliveries are taken as those, and a fourth is a new letter with the next ordinal.
Where the broker marks what it delivers again, what is not marked is no letter that the archive holds.
An id is only a name, which a file that is imported may carry, and content can be changed in the archive: what
is delivered is a letter that the archive holds where it has the same content, and never one that came by
import. Else it gets the next ordinal, too.
Ids are kept as pairs of 64-bit integers, sorted by the first, 20 bytes per letter, so that ten million fit in
memory.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import compaction, manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import to_records
from dlq.archive.storage.store import Store
from dlq.core.brokers import plugin_of, resolve
from dlq.core.columns import column
from dlq.core.identity import Told, content_digest, ordinal_id, told_of
from dlq.core.record import Record

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


def _halves(record_ids: Iterable[str]) -> list["array[int]"]:
    """Return the first and the second half of each id, which is 32 hexadecimal digits."""
    words = array("Q", bytes.fromhex("".join(record_ids)))
    if sys.byteorder == "little":
        words.byteswap()
    return [words[::2], words[1::2]]


def _arrow(values: "array[int]") -> pa.Array:
    kind = pa.uint64() if values.typecode == "Q" else pa.int32()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _reorder(values: "array[int]", order: pa.Array) -> "array[int]":
    found = array(values.typecode)
    found.frombytes(_arrow(values).take(order).buffers()[1] or b"")
    return found


def _repeat(owner: int, rows: int) -> "array[int]":
    return array("i", [owner]) * rows


def _content_of(record: Record) -> Told:
    told: Told = resolve(plugin_of(record.broker_kind).told or _TOLD)(record)
    return told


_TOLD = f"{told_of.__module__}:{told_of.__name__}"


def _told_by(store: Store, manifest: Manifest) -> dict[str, Told]:
    return {
        record.record_id: _content_of(record)
        for batch in segments.batches(store, manifest.segment, _CONTENT, manifest.rows)
        for record in to_records(pa.Table.from_batches([batch]))
    }


def _content_name(record_id: str, told: Told) -> str:
    """Return an id and content as one name, remembered beside the id where ids are not made of content."""
    return content_digest(record_id.encode(), *(str(part).encode() for part in told))


class Deduplicator:
    """The ids of one source. `manifests` are those whose letters may come again, by owner number."""

    def __init__(
        self,
        store: Store,
        source: str,
        unique_ids: bool = False,
        is_import: bool = False,
        marks_redelivered: bool = False,
    ) -> None:
        """Read the record ids of all the source's segments, and of what retention has removed from them."""
        self.manifests: list[Manifest] = []
        self.unlike = 0
        """New letters that have the id of one that is archived, and are another."""
        self.has_alike = False
        """Whether a letter has come that is like another one that came, or is archived."""
        self._store, self._unique_ids, self._is_import = store, unique_ids, is_import
        self._marks_redelivered = marks_redelivered
        self._told: dict[int, dict[str, Told]] = {}
        """Owner -> record id -> what is archived of it."""
        self._delivered: dict[str, Told] = {}
        """Record id -> what has come of it now, of the known letters that were sorted out last."""
        self._recent: set[str] = set()
        self._next_ordinal: dict[tuple[str, bool], int] = {}
        """First id, and whether the broker delivers it for the first time -> where to look next."""
        self._high, self._low, self._owner = array("Q"), array("Q"), array("i")
        for manifest in manifests.list_committed(store, source):
            ids = segments.record_ids(store, manifest)
            self._add(ids.to_pylist(), self._owners(manifest, ids))
            purged = segments.purged_ids(store, manifest)
            gone = _IMPORTED if self._is_foreign(manifest) else SEEN
            self._add(purged.to_pylist(), _repeat(gone, len(purged)))
        self._sort()

    def _is_foreign(self, manifest: Manifest) -> bool:
        return manifest.mode == manifests.BY_IMPORT and not self._is_import

    def _owners(self, manifest: Manifest, ids: pa.ChunkedArray) -> "array[int]":
        if self._is_foreign(manifest):
            return _repeat(_IMPORTED, len(ids))
        if manifest.settled and not self._unique_ids:
            return _repeat(SEEN, len(ids))
        self.manifests.append(manifest)
        owners = _repeat(len(self.manifests) - 1, len(ids))
        if not self._unique_ids:
            settled = pc.is_in(ids, pa.array(manifest.settled_ids, pa.string()))
            for at in pc.indices_nonzero(settled).to_pylist():
                owners[at] = SEEN
        return owners

    def _add(self, record_ids: Iterable[str], owners: "array[int]") -> None:
        high, low = _halves(record_ids)
        self._high += high
        self._low += low
        self._owner += owners

    def _sort(self) -> None:
        order = pc.sort_indices(_arrow(self._high))
        self._high, self._low = _reorder(self._high, order), _reorder(self._low, order)
        self._owner = _reorder(self._owner, order)

    def sort_out(self, records: Sequence[Record]) -> tuple[Sequence[Record], dict[int, dict[str, Record]]]:
        """Return which of the delivered `records` are new (with their final ids), and which were known: owner
        number in `manifests` -> record id -> the record as it came now. Raises ArchiveError."""
        ids = column(records, "record_id")
        distinct = set(ids)
        if len(distinct) == len(ids) and self._recent.isdisjoint(distinct) and not self._is_any_archived(ids):
            self._remember(ids)
            if self._is_import:
                self._remember([_content_name(record.record_id, _content_of(record)) for record in records])
            return records, {}
        new: list[Record] = []
        matched: dict[int, dict[str, Record]] = {}
        self._delivered = {}
        for record in records:
            told = _content_of(record)
            is_first = self._marks_redelivered and record.redelivered is False
            known_id, owner = self._place(record.record_id, told, is_first)
            self.has_alike = self.has_alike or known_id != record.record_id
            if owner is None:
                new.append(record if known_id == record.record_id else record._replace(record_id=known_id))
                self._remember([known_id, _content_name(known_id, told)] if self._is_import else [known_id])
            else:
                matched.setdefault(owner, {})[known_id] = record
                self._delivered[known_id] = told
        return new, matched

    def truer(self, owner: int, delivered: Mapping[str, Record]) -> list[Record]:
        """Return those known letters of an unsettled manifest that tell more now than when they were
        archived: the protocol hid what another one shows, or something else could not be had. Raises
        ArchiveError."""
        if owner < 0 or self.manifests[owner].settled or self._is_import:
            return []
        archived, now = self._archived_as(owner), self._delivered
        deeper = (record_id for record_id in delivered if archived[record_id].depth < now[record_id].depth)
        return [delivered[record_id]._replace(record_id=record_id) for record_id in deeper]

    def replace(self, owner: int, truer: Sequence[Record]) -> None:
        """Let the archive hold these letters as they came now. Raises ArchiveError."""
        self.manifests[owner] = compaction.with_letters(self._store, self.manifests[owner], truer)
        self._told.pop(owner, None)

    def _place(self, first_id: str, told: Told, is_first: bool) -> tuple[str, int | None]:
        """Return (final id, owner of the letter that it is, or None for a new letter)."""
        ordinal, is_unlike = self._next_ordinal.get((first_id, is_first), 0), False
        while True:
            record_id = ordinal_id(first_id, ordinal)
            index = None if record_id in self._recent else self._index(record_id)
            if record_id not in self._recent and index is None:
                self.unlike += is_unlike
                return record_id, None
            owner = _OWN if index is None else self._owner[index]
            ordinal += 1
            is_it = self._is_of(owner, record_id, told)
            is_unlike = is_unlike or not is_it
            if self._unique_ids:
                if is_it:
                    return record_id, owner
                continue
            self._next_ordinal[first_id, is_first] = ordinal
            if index is not None and owner >= 0 and is_it and not is_first:
                self._owner[index] = SEEN
                return record_id, owner

    def _is_of(self, owner: int, record_id: str, told: Told) -> bool:
        """Return whether a delivery is of the letter that has this id. Of a purged one no more is known; and
        ids that a reading has made itself, as all do but a file's, are made of content."""
        if owner >= 0:
            return self._archived_as(owner)[record_id].is_same(told)
        if owner == _OWN and self._is_import:
            name = _content_name(record_id, told)
            return name in self._recent or self._index(name) is not None
        return owner != _IMPORTED

    def _archived_as(self, owner: int) -> Mapping[str, Told]:
        if owner not in self._told:
            while self._told and sum(map(len, self._told.values())) > _MOST_TOLD:
                del self._told[next(iter(self._told))]
            self._told[owner] = _told_by(self._store, self.manifests[owner])
        return self._told[owner]

    def _is_any_archived(self, ids: Sequence[str]) -> bool:
        """Half an id is enough to say that none is."""
        high, end = self._high, len(self._high)
        return any(
            (place := bisect_left(high, wanted)) < end and high[place] == wanted for wanted in _halves(ids)[0]
        )

    def _index(self, record_id: str) -> int | None:
        high, low = (int(part, 16) for part in (record_id[:16], record_id[16:]))
        start, end = bisect_left(self._high, high), bisect_right(self._high, high)
        return next((at for at in range(start, end) if self._low[at] == low), None)

    def _remember(self, ids: Sequence[str]) -> None:
        self._recent.update(ids)
        if len(self._recent) >= _MERGE_AT:
            self._add(self._recent, _repeat(_OWN, len(self._recent)))
            self._sort()
            self._recent.clear()
