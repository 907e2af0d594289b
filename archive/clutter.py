"""What lies in the archive beside its letters and has served: old analyses, older facts, dead temporaries."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dlq.archive import analyses, evidence
from dlq.archive.store import LocalStore, Store, checked_format
from dlq.core.errors import ArchiveError

_UNFINISHED_AFTER = timedelta(days=1)
"""No analysis runs this long: what has no analysis.json by then is what a crash has left."""


def find(store: Store, keep_analyses: int) -> list[str]:
    """Names in the archive that may go: old and unfinished analyses, outdated topology and evidence."""
    return [*_of_analyses(store, max(1, keep_analyses)), *_of_topology(store), *evidence.outdated(store)]


def _of_analyses(store: Store, keep: int) -> Iterator[str]:
    """Later analyses use rows that earlier ones have written: what a kept analysis names stays."""
    finished = analyses.ids(store)
    kept = set(finished[-keep:])
    named: set[str] = set()
    for analysis in (analyses.load(store, name) for name in kept):
        named.update(file for files in analysis.tables.values() for file in files)
        named.update(part["file"] for part in analysis.extra.get("parts", ()) if "file" in part)
    last_unfinished = f"{datetime.now(UTC) - _UNFINISHED_AFTER:%Y%m%dT%H%M%S}"
    for name in store.list("analyses/"):
        folder = name.split("/")[1]
        over = folder in finished or folder < last_unfinished
        if over and folder not in kept and name not in named:
            yield name


def _of_topology(store: Store) -> Iterator[str]:
    """Only the newest facts of a source, and of each of its nodes, are ever looked at."""
    seen: set[tuple[str, str]] = set()
    for name in reversed(store.list("topology/")):
        try:
            document = checked_format(name, store.get(name))
        except ArchiveError:
            continue
        source, brokers = str(document.get("source")), document.get("brokers")
        about = {(source, ""), *((source, str(node)) for node in brokers or () if isinstance(brokers, dict))}
        if about <= seen:
            yield name
        seen |= about


def sweep_temporaries(store: Store) -> None:
    """Remove the temporary files and folders of processes that are gone, from an archive in a folder."""
    if not isinstance(store, LocalStore):
        return
    yesterday = time.time() - 86_400
    for path in sorted(Path(store.location).rglob(".tmp-*"), reverse=True):
        with suppress(OSError):
            if path.stat().st_mtime < yesterday:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
