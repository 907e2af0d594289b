"""Prove the books: captured = replayed + held + dismissed + purged + waiting, per source, with every digest.
Who looks again and again counts them first, which reads no letter.

A letter whose replay is in doubt is in none of them, so that the books can't balance before
`dlq replay reconcile` has resolved it. Every column is read, and every body compared with its digest: five
seconds of a processor for a million letters of half a KB, too little to leave damage unseen by default.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import losses, manifests, segments, user_sql
from dlq.archive.losses import Loss
from dlq.archive.manifests import Manifest
from dlq.archive.schema import REPLAYS, SEGMENT
from dlq.archive.storage.parquet import MOST_ROWS
from dlq.archive.storage.store import Store
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.identity import digest_of_ids
from dlq.core.settings import Settings
from dlq.replay import ledger as ledgers
from dlq.replay import still_queued

if TYPE_CHECKING:
    import duckdb

_OPEN = ("sending", "in_doubt")
_BECAME = ("in_doubt", "replayed", "held", "dismissed")
_RANKS = (*((0, state) for state in _OPEN), (1, "confirmed"), (2, "held"), (3, "dismissed"))
"""Of a letter of which the ledger says several things the first of these counts."""
_NAMED = 3
_ATTEMPTS = 20
_NO_IDS = pa.array([], pa.string())
_READ = ("record_id", "body", "body_sha256")
_NO_SOURCE = "(unknown)"
_NO_MANIFEST = (
    "segment {stem} has no manifest, so its letters are in no books: a crash left it, and the next pull "
    "captures them again, or its manifest was removed: then restore that before the next pull"
)


@dataclass
class Books:
    """The letters of one source. `problems` are sentences, and without any the books balance; `notes` are
    of what is in no books."""

    source: str
    captured: int = 0
    replayed: int = 0
    held: int = 0
    dismissed: int = 0
    purged: int = 0
    waiting: int = 0
    in_doubt: int = 0
    still_queued: int = 0
    """Of `replayed`: letters that still lie in their dead-letter queue: no pull has taken them out."""
    lost: int = 0
    """Letters at most that were never captured, beside the equation, unless dismissed."""
    losses: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Every captured letter is accounted for, once, and is what was captured."""
        accounted = self.replayed + self.held + self.dismissed + self.purged + self.waiting
        return self.captured == accounted and not self.problems

    def as_json(self) -> dict[str, Any]:
        """Return the document that `dlq verify -o json` prints."""
        return {**asdict(self), "balanced": self.balanced}


class _Replays:
    """Record ids by what the ledger says of them."""

    def __init__(self, table: pa.Table | None) -> None:
        table = REPLAYS.empty_table() if table is None else table
        self._table = table
        self.open = self._ids(_OPEN)
        self.replayed = self._ids(("confirmed",))
        self.held = self._ids(("held",))
        self.dismissed = self._ids(("dismissed",))

    def _ids(self, states: Sequence[str]) -> pa.Array:
        chosen = self._table.filter(pc.is_in(self._table["state"], value_set=pa.array(states)))
        return chosen["record_id"].combine_chunks()


def verify(store: Store, settings: Settings) -> list[Books]:
    """Return the books of every source; anew where segments were written again while they were read. Raises
    FormatTooNew, ArchiveError, UsageError without the ledger."""
    for _ in range(_ATTEMPTS):
        replays = _Replays(ledgers.as_arrow(settings.ledger, store))
        found = _look(store)
        for loss in losses.open_ones(store):
            found[loss.source].lost.append(loss)
        books = [_books(store, settings, source, of_it, replays) for source, of_it in sorted(found.items())]
        read = [manifest for of_it in found.values() for manifest in of_it.manifests]
        if not any(each.problems for each in books) or manifests.are_committed(store, read):
            break
    return books


@dataclass
class _Contents:
    """What lies in the archive of one source."""

    manifests: list[Manifest] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    """Segments without a manifest."""
    damaged: list[ArchiveError] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)


def _look(store: Store) -> defaultdict[str, _Contents]:
    source_of = {PurePath(name).stem: _source(name) for name in store.list("segments/")}
    found: defaultdict[str, _Contents] = defaultdict(_Contents)
    for source in set(source_of.values()):
        found[source].orphans = _orphans(store, source)
    damaged: dict[str, ArchiveError] = {}
    for manifest in manifests.list_committed(store, damaged=damaged):
        found[manifest.source].manifests.append(manifest)
    for name, error in damaged.items():
        found[source_of.get(PurePath(name).stem, _NO_SOURCE)].damaged.append(error)
    return found


def _source(segment: str) -> str:
    """Return S of segments/source=S/date=D/<stem>.parquet."""
    return segment.split("/")[1].removeprefix("source=")


def _orphans(store: Store, source: str) -> list[str]:
    """Return segments without a manifest. A run that holds the source's lock has not written it yet: its
    segment is no orphan, nor is that of one that begins meanwhile."""
    before = segments.list_uncommitted(store, source)
    if not before or store.holder(f"source-{source}") is not None:
        return []
    return [name for name in segments.list_uncommitted(store, source) if name in before]


def _books(store: Store, settings: Settings, source: str, found: _Contents, replays: _Replays) -> Books:
    books = Books(source, problems=[f"{error}; its letters are in no books" for error in found.damaged])
    seen: list[pa.Array] = []
    there: list[pa.Array] = []
    for manifest in found.manifests:
        books.captured += manifest.rows + manifest.purged
        books.purged += manifest.purged
        ids = _checked_ids(store, manifest, books)
        there.append(ids)
        if still_queued.is_left(manifest, settings):
            settled = pc.is_in(ids, value_set=pa.array(manifest.settled_ids, pa.string()))
            left = ids.filter(pc.invert(settled))
            books.still_queued += pc.sum(pc.is_in(left, value_set=replays.replayed)).as_py() or 0
        seen += [ids, _purged_ids(store, manifest, books)]
    _count(books, pa.chunked_array(there, pa.string()), replays)
    known = pa.chunked_array(seen, pa.string())
    doubled = len(known) - pc.count_distinct(known).as_py()
    if doubled:
        books.problems.append(f"{doubled} letters are in the archive twice")
    for segment in found.orphans:
        _check_orphan(store, segment, known, books)
    return _with_words(books, settings, found.lost)


def _with_words(books: Books, settings: Settings, lost: Sequence[Loss]) -> Books:
    """Say what the numbers mean, and what is lost."""
    if books.in_doubt:
        books.problems.append(f"{books.in_doubt} letters are in doubt: `dlq replay reconcile` resolves them")
    if lost:
        books.lost, books.losses = losses.letters(lost), [loss.as_json() for loss in lost]
        books.notes.append(losses.in_words(lost))
    if books.still_queued:
        left = still_queued.in_words(settings, {books.source: books.still_queued})
        books.notes += [f"of the replayed letters {words}; next: {command}" for words, command in left]
    return books


_COUNTED = f"""
    SELECT source, became, count(*), count(*) FILTER (still_queued)
    FROM _brief JOIN (
        SELECT record_id, min(rank) AS became
        FROM replays JOIN (VALUES {", ".join(map(repr, _RANKS))}) ranks(rank, state) USING (state)
        GROUP BY 1) USING (record_id)
    GROUP BY ALL"""


def count(connection: "duckdb.DuckDBPyConnection", store: Store, settings: Settings) -> list[Books]:
    """Return the books of every source as manifests and ledger have them: the numbers of `verify` where what
    lies there is what was captured, of which only that tells."""
    lost = losses.open_by_source(store)
    found = {source: Books(source) for source in lost}
    for manifest in manifests.list_committed(store):
        books = found.setdefault(manifest.source, Books(manifest.source))
        books.captured += manifest.rows + manifest.purged
        books.purged += manifest.purged
        books.waiting += manifest.rows
    for source, became, letters, queued in user_sql.run(connection, _COUNTED).rows:
        books = found[source]
        books.waiting -= letters
        setattr(books, _BECAME[became], letters)
        books.still_queued += queued if _BECAME[became] == "replayed" else 0
    return [_with_words(books, settings, lost.get(source, ())) for source, books in sorted(found.items())]


def _check_orphan(store: Store, segment: str, known: pa.ChunkedArray, books: Books) -> None:
    """Check an orphan: a compaction that crashed leaves letters that are in the books already."""
    ids, _ = _read(store, segment)
    if ids is None or not pc.all(pc.is_in(ids, value_set=known)).as_py():
        books.notes.append(_NO_MANIFEST.format(stem=PurePath(segment).stem))


def _checked_ids(store: Store, manifest: Manifest, books: Books) -> pa.Array:
    """Return the ids that are really there; what is not as the manifest or a digest says is a problem."""
    ids, changed = _read(store, manifest.segment, manifest.rows) if manifest.segment else (_NO_IDS, [])
    if ids is None:
        books.problems.append(f"segment {manifest.stem} cannot be read")
        return _NO_IDS
    if len(ids) != manifest.rows or digest_of_ids(ids.to_pylist()) != manifest.digest:
        books.problems.append(f"segment {manifest.stem} is not what its manifest says")
    if changed:
        named = ", ".join(changed[:_NAMED]) + (", …" if len(changed) > _NAMED else "")
        books.problems.append(
            f"segment {manifest.stem}: {len(changed)} bodies are not what was captured: {named}"
        )
    return ids


def _read(store: Store, segment: str, most_rows: int = MOST_ROWS) -> tuple[pa.Array | None, list[str]]:
    """Return the ids in a segment (None: it cannot be read), and of letters whose body has another digest."""
    ids: list[str] = []
    changed: list[str] = []
    try:
        for batch in segments.batches(store, segment, SEGMENT.names, most_rows):
            some, bodies, digests = (batch[name].to_pylist() for name in _READ)
            ids += some
            made = (sha256(body or b"").hexdigest() for body in bodies)
            changed += [i for i, is_, was in zip(some, made, digests, strict=True) if is_ != was]
    except (ArchiveError, UsageError):
        return None, []
    return pa.array(ids, pa.string()), changed


def _purged_ids(store: Store, manifest: Manifest, books: Books) -> pa.Array:
    """Return the ids that retention has left of removed letters."""
    try:
        ids = segments.purged_ids(store, manifest).combine_chunks()
    except (ArchiveError, UsageError):
        ids = _NO_IDS
    if manifest.purged_ids and len(ids) != manifest.purged:
        books.problems.append(f"segment {manifest.stem} does not name all the letters that were removed")
    return ids


def _count(books: Books, ids: pa.ChunkedArray, replays: _Replays) -> None:
    """Count all at once, as what is known is gone through each time: in doubt before replayed before held
    before dismissed, and waiting otherwise, each id once."""
    rest = ids
    counts = []
    for known in (replays.open, replays.replayed, replays.held, replays.dismissed):
        is_known = pc.is_in(rest, value_set=known)
        counts.append(pc.sum(is_known).as_py() or 0)
        rest = rest.filter(pc.invert(is_known))
    books.in_doubt += counts[0]
    books.replayed += counts[1]
    books.held += counts[2]
    books.dismissed += counts[3]
    books.waiting += len(rest)
