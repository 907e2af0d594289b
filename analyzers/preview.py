"""Letters that no analysis has judged, judged at once by what each says alone: for looking, never kept.

What shows only between letters is not in it, nor are the user's own rules, which are Spark SQL. Plans,
incidents, thresholds and metrics rest on analyses alone.
"""

import gc
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from dlq.analyzers import letters, topology
from dlq.analyzers.groups.advice import advise_alone
from dlq.analyzers.rules import Facts, Letter, Verdict, judged
from dlq.archive import analyses, manifests
from dlq.archive.analyses import VERDICTS
from dlq.archive.manifests import Manifest
from dlq.archive.store import Store
from dlq.core.errors import ArchiveError
from dlq.core.settings import Settings

if TYPE_CHECKING:
    from dlq.archive.views import Page

MOST = 20_000
"""Letters that are judged at once; more of them are for an analysis."""
_COLUMNS = ("source", "record_id", *Verdict._fields, "advice", "advice_reason")


class Preview(NamedTuple):
    """What is known at once of letters without a verdict."""

    letters: int
    """How many there are; those of a segment that a compaction made of judged ones are not counted."""
    verdicts: pa.Table | None
    """With the schema VERDICTS, one row per letter; None where they are too many."""


def preview(store: Store, settings: Settings, page: "Page | None" = None, most: int = MOST) -> Preview:
    """A preview of the letters that the latest analysis has not read, or of those of them that are on `page`.

    Raises ArchiveError.
    """
    return of(store, settings, unread(store), page, most)


def unread(store: Store) -> Iterator[Manifest]:
    """The segments that the latest analysis has not read, nor had been read before they were compacted."""
    last = analyses.latest(store)
    read = set(last.segments) if last else set()
    return (m for m in manifests.every(store) if m.stem not in read and read.isdisjoint(m.replaces))


def of(
    store: Store,
    settings: Settings,
    segments: Iterable[Manifest],
    page: "Page | None" = None,
    most: int = MOST,
) -> Preview:
    """A preview of the letters of these segments, whoever has judged them. Raises ArchiveError."""
    parts = list(_parts(segments, page))
    count = sum(m.rows if ids is None else len(ids) for m, ids in parts)
    if count > most:
        return Preview(count, None)
    found = chain.from_iterable(_read(store, m, ids) for m, ids in parts)
    return Preview(count, judge_all(found, topology.facts(store, settings), settings.replay.max_laps))


def _parts(segments: Iterable[Manifest], page: "Page | None") -> Iterator[tuple[Manifest, Set[str] | None]]:
    """What to read: segments with the ids of those letters that are wanted, None for all."""
    ids_of = {PurePosixPath(file).stem: ids for file, ids in (page or {}).items()}
    for manifest in segments:
        if manifest.rows and (page is None or manifest.stem in ids_of):
            yield manifest, ids_of.get(manifest.stem)


def judge_all(found: Iterable[Letter], facts: Facts, max_laps: int) -> pa.Table:
    """The verdicts on some letters, one for each, however often it is found under a source."""
    with _no_collections():
        rows = {(letter.source, letter.record_id): _row(letter, facts, max_laps) for letter in found}
    return _table(rows.values())


@contextmanager
def _no_collections() -> Iterator[None]:
    """Looking for garbage among letters takes a quarter of the time and finds none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(_COLUMNS, row, strict=True)) for row in rows], VERDICTS)


def _read(store: Store, manifest: Manifest, ids: Set[str] | None) -> Iterator[Letter]:
    try:
        for group in letters.read(store.parquet(manifest.segment)):
            yield from (letter for letter in group.letters if ids is None or letter.record_id in ids)
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{manifest.segment} in the archive cannot be read: {error}") from error


def _row(letter: Letter, facts: Facts, max_laps: int) -> tuple[Any, ...]:
    verdict, _ = judged(letter, facts)
    return (letter.source, letter.record_id, *verdict, *advise_alone(letter, verdict, max_laps))
