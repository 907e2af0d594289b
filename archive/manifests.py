"""Manifests: a segment counts only when its manifest is there.

`manifests/<pull>-<n>.json` has the stem of its segment. `settled` says that the broker has answered
something later than the acknowledgement of its letters; until then they may come again. While only
some of a manifest's letters are settled, `settled_ids` names them.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Literal

from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage.parquet import MOST_ROWS
from dlq.archive.storage.store import Store, build, check_inside
from dlq.core import documents
from dlq.core.errors import ArchiveError

BY_IMPORT: Literal["import"] = "import"
"""The `mode` of letters that came from a file: they lie in no queue, and their ids are what the file says."""
_VOID = ".void"
_SMALL = 2_000
"""Bytes of a manifest that names no settled letters."""
_ATTEMPTS = 20
"""Nobody replaces manifests so often while they are read, but a store may list what it has not."""


@dataclass(frozen=True)
class Manifest:
    """One committed segment."""

    stem: str
    pull_id: str
    source: str
    mode: str
    segment: str
    rows: int
    digest: str
    """SHA-256 over the record ids in row order (`dlq.core.identity.digest_of_ids`)."""
    created_at: str
    checkpoint: Mapping[str, int] = field(default_factory=dict)
    settled: bool = False
    settled_ids: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Stems that a compaction wrote again into this segment: they no longer count."""
    purged: int = 0
    """Rows that retention has removed from this segment's letters."""
    purged_ids: str = ""
    """The file that keeps the ids of the removed letters, so that they stay known."""
    broker: str = ""
    """The broker of its source at the pull, or the one that the user named to an import, and none that a file
    names; empty in a manifest of an older dlq."""


def new_pull_id() -> str:
    """Return an id that sorts by time; random digits part pulls of one second: manifests have their names."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(4).hex()}"


def name_of(stem: str) -> str:
    """Return the manifest's name in the archive."""
    return f"manifests/{stem}.json"


def void(store: Store, stem: str) -> None:
    """Let no manifest of this stem count: its segment is about to be removed, and on an object store one may
    be on its way yet, of a pull that lost its lock, and so acknowledged nothing for it."""
    store.put(f"manifests/{stem}{_VOID}", b"")


def write(store: Store, manifest: Manifest) -> None:
    """Write or replace a manifest, durably."""
    store.put(name_of(manifest.stem), json.dumps({"format": FORMAT_VERSION, **asdict(manifest)}).encode())


def settle(store: Store, manifest: Manifest, record_ids: set[str] | None = None) -> Manifest:
    """Mark all of a manifest's letters settled, or these of them; returns what was written."""
    known = {*manifest.settled_ids, *(record_ids or ())}
    whole = record_ids is None or len(known) >= manifest.rows
    changed = replace(manifest, settled=whole, settled_ids=() if whole else tuple(sorted(known)))
    write(store, changed)
    return changed


def load(store: Store, name: str) -> Manifest:
    """Return one manifest by its name in the archive. Raises FormatTooNew, ArchiveError."""
    return _parse(name, store.get(name))


def _parse(name: str, data: bytes) -> Manifest:
    """Return what a manifest's file says. Most are small, and a command lists them several times."""
    return (_parse_once if len(data) <= _SMALL else _parse_once.__wrapped__)(name, data)


@lru_cache(maxsize=10_000)
def _parse_once(name: str, data: bytes) -> Manifest:
    return build(name, data, partial(_build_manifest, name))


def _build_manifest(own_name: str, document: Mapping[str, Any]) -> Manifest:
    manifest = documents.build(Manifest, document)
    if name_of(manifest.stem) != own_name:
        raise ValueError(f"its stem is {manifest.stem!r}, another than its name: a copy counts letters twice")
    for name in (name_of(manifest.stem), manifest.segment or "none", manifest.purged_ids or "none"):
        check_inside(name)
    for name, found in (("rows", manifest.rows), ("purged", manifest.purged)):
        if not 0 <= found <= MOST_ROWS:
            raise ValueError(f"{name} must be between 0 and {MOST_ROWS}")
    if manifest.rows and not manifest.segment:
        raise ValueError("it has rows and no segment")
    return manifest


def furthest_checkpoint(some: Iterable[Manifest]) -> dict[str, int]:
    """Return where these have come to: of each place of a log the highest offset."""
    reached: dict[str, int] = {}
    for manifest in some:
        for place, offset in manifest.checkpoint.items():
            reached[place] = max(offset, reached.get(place, 0))
    return reached


def list_committed(
    store: Store, source: str | None = None, damaged: dict[str, ArchiveError] | None = None
) -> Iterator[Manifest]:
    """Return the manifests that count, by name (which is by time within a pull).

    A damaged one raises ArchiveError or, where `damaged` is given, is left out and noted there by its name.
    """
    found = list(_read_all(store, damaged).values())
    replaced = {stem for manifest in found for stem in manifest.replaces}
    return (m for m in found if m.stem not in replaced and source in (None, m.source))


def are_committed(store: Store, some: Iterable[Manifest]) -> bool:
    """Return whether all of these still count: none was written again with others since it was read."""
    return {m.stem for m in some} <= {m.stem for m in list_committed(store, damaged={})}


def _read_all(store: Store, damaged: dict[str, ArchiveError] | None) -> dict[str, Manifest]:
    """Return every manifest by name. One that vanishes meanwhile was replaced, so the list is read anew."""
    known: dict[str, Manifest | None] = {}
    for _ in range(_ATTEMPTS):
        listed = store.list("manifests/")
        void = {f"{name.removesuffix(_VOID)}.json" for name in listed if name.endswith(_VOID)}
        names = [name for name in listed if name.endswith(".json") and name not in void]
        new = store.get_many([name for name in names if name not in known])
        known |= {name: _read(name, data, damaged) for name, data in new.items()}
        if all(name in known for name in names):
            return {name: manifest for name in names if (manifest := known[name])}
    gone = next(name for name in names if name not in known)
    raise ArchiveError(f"the archive {store.location} lists {gone!r}, which is not there")


def _read(name: str, data: bytes, damaged: dict[str, ArchiveError] | None) -> Manifest | None:
    try:
        return _parse(name, data)
    except ArchiveError as error:
        if damaged is None:
            raise
        damaged[name] = error
        return None
