"""The records that a plan names, read segment by segment, only the columns that sending needs."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.archive import manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.schema import check_cells, to_records
from dlq.archive.storage import parquet
from dlq.archive.storage.store import Store
from dlq.core.brokers import plugin_of
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.record import Record
from dlq.replay.dismissals import find_dismissed
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans.content import ALWAYS_SENT, SENT_COLUMNS
from dlq.replay.plans.letters import Letter, Located
from dlq.replay.plans.planfile import Header

PLANNED_COLUMNS = (*SENT_COLUMNS, "body_sha256")
"""What a plan looks at."""


class Loader:
    """Reads the letters' records in the plan's order; holds one segment at a time."""

    def __init__(
        self, store: Store, columns: Sequence[str] = SENT_COLUMNS, lean: bool = False, hashes: bool = False
    ) -> None:
        """`lean`: letters without what their property blocks hold anyway; `hashes`: fill `files`."""
        self._store, self._columns, self._lean, self._hashes = store, columns, lean, hashes
        self.files: dict[str, str | None] = {}
        """Segment -> digest of the file that its letters were read from; None: of several, or a large one."""
        self._stem = ""
        self._digest: str | None = None
        self._table = pa.table({})
        self._look()

    def _look(self) -> None:
        """Look which segment holds the letters of which stem now, and which stems were written again."""
        committed = list(manifests.list_committed(self._store))
        self._manifests = {stem: manifest for manifest in committed for stem in manifest.replaces}
        self._rewritten = set(self._manifests)
        self._manifests |= {manifest.stem: manifest for manifest in committed}

    def check(self, header: Header, letters: Iterable[Letter], ledger: Ledger | None) -> None:
        """Check that the archive still holds what the plan was made from, and those of its `letters` that may
        still be sent; raises UsageError before anything is sent."""
        stem = self._find_changed(header.segments)
        if stem is not None:
            self._look()  # `dlq retain` may have written it again meanwhile
            stem = self._find_changed(header.segments)
        if stem is None:
            unsent = _find_unsent(self._find_removed(header.segments, letters), header, ledger)
            stem = next((letter.segment for letter in unsent), None)
        if stem is not None:
            raise UsageError(
                f"plan {header.plan} names letters of segment {stem}, which is no longer in the archive "
                "as it was; make a new plan with `dlq replay plan`"
            )

    def _find_changed(self, segments: Mapping[str, str]) -> str | None:
        """Return the first of these segments that is not as its digest says, or not there."""
        for stem, digest in segments.items():
            manifest = self._manifests.get(stem)
            changed = manifest is None or (stem not in self._rewritten and manifest.digest != digest)
            if manifest is None or changed or not self._is_there(manifest):
                return stem
        return None

    def _find_removed(self, planned: Collection[str], letters: Iterable[Letter]) -> list[Letter]:
        """Find those of these letters that retention has removed since they were planned from segments."""
        held = {stem: self._manifests[stem] for stem in self._rewritten.intersection(planned)}
        thinned = {stem: manifest for stem, manifest in held.items() if manifest.purged}
        left = [letter for letter in letters if letter.segment in thinned] if thinned else []
        ids, removed = {letter.record_id for letter in left}, set[str]()
        for manifest in {manifest.stem: manifest for manifest in thinned.values()}.values():
            removed |= ids.intersection(segments.purged_ids(self._store, manifest).to_pylist())
        return [letter for letter in left if letter.record_id in removed]

    def sources(self, segments: Iterable[str]) -> list[str]:
        """Return the sources that these segments were captured from."""
        return sorted({self._manifests[stem].source for stem in segments if stem in self._manifests})

    def records(self, letters: Sequence[Located]) -> list[Record]:
        """Return the records of these letters; raises ArchiveError when one is not where the plan says."""
        found: list[Record] = []
        start = 0
        while start < len(letters):
            stem = letters[start].segment
            end = start + 1
            while end < len(letters) and letters[end].segment == stem:
                end += 1
            found += self._of_segment(stem, letters[start:end])
            start = end
        return found

    def _of_segment(self, stem: str, letters: Sequence[Located]) -> list[Record]:
        if self._manifest(stem).stem != self._stem:
            self._load(stem)
        if self.files.setdefault(stem, self._digest) != self._digest:
            self.files[stem] = None
        if stem in self._rewritten:
            return self._by_id(letters)
        if max(letter.row for letter in letters) >= self._table.num_rows:
            raise ArchiveError(f"segment {stem} has fewer rows than the plan names")
        records = list(to_records(_rows(self._table, letters)))
        for letter, record in zip(letters, records, strict=True):
            if letter.record_id != record.record_id:
                raise ArchiveError(f"row {letter.row} of segment {stem} is not the letter {letter.record_id}")
        return records

    def _manifest(self, stem: str) -> Manifest:
        if stem not in self._manifests:
            raise ArchiveError(f"segment {stem}, which the plan names, is not in the archive")
        return self._manifests[stem]

    def _load(self, stem: str) -> None:
        self._stem, self._table = "", pa.table({})  # before the next one comes into memory
        try:
            self._table, self._digest = self._read(self._manifest(stem))
        except ArchiveError:
            self._look()  # `dlq retain` may have written it again meanwhile
            self._table, self._digest = self._read(self._manifest(stem))
        self._stem = self._manifest(stem).stem

    def _by_id(self, letters: Sequence[Located]) -> list[Record]:
        """Find them by id: compaction has moved the rows, so that only their ids still say where they are."""
        import pyarrow.compute as pc  # as long as all of the rest takes to import

        ids = pa.array([letter.record_id for letter in letters], pa.string())
        rows = pc.index_in(ids, value_set=self._table["record_id"].combine_chunks())
        if rows.null_count:
            missing = letters[rows.is_null().index(True).as_py()].record_id
            raise ArchiveError(f"retention has removed the letter {missing} from the archive")
        return list(to_records(self._table.take(rows)))

    def _read(self, manifest: Manifest) -> tuple[pa.Table, str | None]:
        with parquet.readable(manifest.segment):
            file, digest = segments.open_hashed(self._store, manifest, self._columns, self._hashes)
            table = (_read_lean(file) if self._lean else None) or file.read(columns=self._columns)
            check_cells(table)
            return table, digest

    def _is_there(self, manifest: Manifest) -> bool:
        if not manifest.segment:
            return False
        try:
            self._store.open(manifest.segment).close()
        except UsageError:
            return False
        return True


def _find_unsent(letters: Sequence[Letter], header: Header, ledger: Ledger | None) -> Iterator[Letter]:
    """Yield those of a plan's letters that an apply would send."""
    keys, ids = [letter.key for letter in letters], [letter.record_id for letter in letters]
    known = ledger.states(keys, header.plan, header.made_at) if ledger else {}
    closed = find_dismissed(ledger, ids) if ledger else ()
    for letter in letters:
        if known.get(letter.key, "planned") == "planned" and letter.record_id not in closed:
            yield letter


def _rows(table: pa.Table, letters: Sequence[Located]) -> pa.Table:
    """Return the letters' rows, in order; without a copy where they lie side by side, as they mostly do."""
    first, last = letters[0].row, letters[-1].row
    if last - first == len(letters) - 1:
        return table.slice(first, len(letters))
    return table.take([letter.row for letter in letters])


def _read_lean(file: pq.ParquetFile) -> pa.Table | None:
    """Return the lean table; None where a letter has no property block, or brokers are of several kinds."""
    kinds = {*file.read(columns=["broker_kind"])["broker_kind"].to_pylist()}
    sent = plugin_of(kinds.pop()).sent_columns if len(kinds) == 1 else None
    if sent is None:
        return None
    table = file.read(columns=[*ALWAYS_SENT, *sent])
    return table if table["raw_properties"].null_count == 0 else None
