"""Prove the books: per source, captured = replayed + held + purged + waiting, and every digest holds.

A letter whose replay is in doubt is in none of them, so that the books can't balance before
`dlq replay reconcile` has resolved it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import manifests, segments
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.core.errors import ArchiveError, BooksDoNotBalance, UsageError
from dlq.core.identity import digest_of_ids
from dlq.core.settings import Settings
from dlq.replay import ledger as ledgers

_OPEN = ("sending", "in_doubt")


@dataclass
class Books:
    """The letters of one source. `problems` are sentences; without any the books balance."""

    source: str
    captured: int = 0
    replayed: int = 0
    held: int = 0
    purged: int = 0
    waiting: int = 0
    in_doubt: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Every captured letter is accounted for, once, and is what was captured."""
        accounted = self.replayed + self.held + self.purged + self.waiting
        return self.captured == accounted and not self.problems

    def as_json(self) -> dict[str, Any]:
        """As `dlq verify -o json` prints it."""
        return {**asdict(self), "balanced": self.balanced}


class _Replays:
    """Record ids by what the ledger says of them."""

    def __init__(self, table: pa.Table | None) -> None:
        table = ledgers.REPLAYS.empty_table() if table is None else table
        self._table = table
        self.open = self._ids(_OPEN)
        self.replayed = self._ids(("confirmed",))
        self.held = self._ids(("held",))

    def _ids(self, states: Sequence[str]) -> pa.Array:
        chosen = self._table.filter(pc.is_in(self._table["state"], value_set=pa.array(states)))
        return chosen["record_id"].combine_chunks()


def verify(store: Store, settings: Settings) -> list[Books]:
    """The books of every source. Raises BooksDoNotBalance when a manifest is damaged, FormatTooNew."""
    replays = _Replays(ledgers.as_arrow(settings.ledger, store))
    by_source: dict[str, list[Manifest]] = {}
    for manifest in _manifests(store):
        by_source.setdefault(manifest.source, []).append(manifest)
    return [_books(store, source, found, replays) for source, found in sorted(by_source.items())]


def _manifests(store: Store) -> list[Manifest]:
    """Without one of them nobody knows what was captured, nor of which source."""
    try:
        return list(manifests.every(store))
    except ArchiveError as error:
        raise BooksDoNotBalance(f"{error}; without it there are no books") from error


def _books(store: Store, source: str, found: Sequence[Manifest], replays: _Replays) -> Books:
    books = Books(source)
    seen: list[pa.Array] = []
    for manifest in found:
        books.captured += manifest.rows + manifest.purged
        books.purged += manifest.purged
        ids = _checked_ids(store, manifest, books)
        _count(books, ids, replays)
        seen += [ids, _purged_ids(store, manifest, books)]
    doubled = sum(map(len, seen)) - pc.count_distinct(pa.chunked_array(seen, pa.string())).as_py()
    if doubled:
        books.problems.append(f"{doubled} letters are in the archive twice")
    if books.in_doubt:
        books.problems.append(f"{books.in_doubt} letters are in doubt: `dlq replay reconcile` resolves them")
    return books


def _checked_ids(store: Store, manifest: Manifest, books: Books) -> pa.Array:
    """The ids that are really there; a segment that is not what its manifest says is a problem."""
    try:
        ids = segments.record_ids(store, manifest).combine_chunks()
    except (OSError, pa.ArrowException, ArchiveError, UsageError):
        books.problems.append(f"segment {manifest.stem} cannot be read")
        return pa.array([], pa.string())
    if len(ids) != manifest.rows or digest_of_ids(ids.to_pylist()) != manifest.digest:
        books.problems.append(f"segment {manifest.stem} is not what its manifest says")
    return ids


def _purged_ids(store: Store, manifest: Manifest, books: Books) -> pa.Array:
    """The ids that retention has left of removed letters."""
    try:
        ids = segments.purged_ids(store, manifest).combine_chunks()
    except (OSError, pa.ArrowException, ArchiveError, UsageError):
        ids = pa.array([], pa.string())
    if manifest.purged_ids and len(ids) != manifest.purged:
        books.problems.append(f"segment {manifest.stem} does not name all the letters that were removed")
    return ids


def _count(books: Books, ids: pa.Array, replays: _Replays) -> None:
    """Each id once: in doubt before replayed, replayed before held, and waiting otherwise."""
    rest = ids
    counts = []
    for known in (replays.open, replays.replayed, replays.held):
        is_known = pc.is_in(rest, value_set=known)
        counts.append(pc.sum(is_known).as_py() or 0)
        rest = rest.filter(pc.invert(is_known))
    books.in_doubt += counts[0]
    books.replayed += counts[1]
    books.held += counts[2]
    books.waiting += len(rest)
