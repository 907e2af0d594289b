"""One round of keeping the archive small: first looked at, then done, source by source."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from dlq.archive import analyses, compaction, manifests, store_facts
from dlq.archive import topology as of_pull
from dlq.archive.manifests import Manifest
from dlq.archive.retention import Choice, choose, still_chosen
from dlq.archive.storage.store import LocalStore, Store
from dlq.core.clock import now
from dlq.core.errors import ArchiveError, Busy, DlqError
from dlq.core.runtime import patience
from dlq.core.settings import Retain

_UNFINISHED_AFTER = timedelta(days=1)
"""No analysis runs this long: what has no analysis.json by then is what a crash has left."""


def _list_clutter(store: Store, keep_analyses: int) -> list[str]:
    """Return names in the archive that may go: old and unfinished analyses, outdated topology and
    evidence."""
    return [
        *_of_analyses(store, max(1, keep_analyses)),
        *_of_topology(store),
        *store_facts.list_outdated(store),
    ]


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
    """Yield the facts that are never looked at: others than the newest of a source, of each of its nodes, of
    each fact that rules read, and of what was imported."""
    seen: set[tuple[str, ...]] = set()
    for name, document in of_pull.read_each(store, reversed(of_pull.list_names(store)), but_damaged=True):
        source, brokers = str(document.get("source")), document.get("brokers")
        about: set[tuple[str, ...]] = {(source, str(of_pull.is_of_import(document)))}
        about |= {(source, "fact", name) for name in of_pull.FACTS.keys() & document}
        about |= {(source, name, key) for name in of_pull.BY_NAME for key in document.get(name, ())}
        about |= {(source, "", str(node)) for node in brokers or () if isinstance(brokers, dict)}
        about |= {(source, "queue", queue) for each in document.get("imported", ()) for queue in each.queues}
        if about <= seen:
            yield name
        seen |= about


def sweep_temporaries(store: Store) -> None:
    """Remove the temporary files and folders of processes that are gone, from an archive in a folder."""
    if isinstance(store, LocalStore):
        store.folder.sweep(time.time() - 86_400)


_SEGMENTS_LOCK = "segments"
_ATTEMPTS = 20


@contextmanager
def steady_segments(store: Store) -> Iterator[None]:
    """Let no segment be written again while an analysis reads it: both do their work inside this.

    Waits `patience.BUSY` seconds for another who is inside, then raises Busy.
    """
    with ExitStack() as held:
        for _ in patience.tries(patience.BUSY, patience.RECHECK):
            try:
                held.enter_context(store.lock(_SEGMENTS_LOCK))
                break
            except Busy as error:
                busy = error
        else:
            raise busy
        yield


@dataclass(frozen=True)
class Work:
    """What a round would do. `groups`: source -> segments to write as one; `clutter`: names to delete."""

    rules: Retain
    choice: Choice
    groups: Mapping[str, Sequence[Sequence[Manifest]]]
    clutter: Sequence[str]
    segments: int
    """Segments with letters, before."""

    @property
    def segments_after(self) -> int:
        """Segments with letters when the work is done."""
        rewritten = [group for groups in self.groups.values() for group in groups]
        gone = sum(1 for group in rewritten for manifest in group if manifest.rows)
        return self.segments - gone + sum(1 for group in rewritten if self._rows_left(group))

    def _rows_left(self, group: Sequence[Manifest]) -> int:
        return sum(m.rows - len(self.choice.removals.get(m.stem, ())) for m in group)


@dataclass
class Done:
    """What was done. `removed`: letters; `busy`: sources that another run holds, with who that is."""

    bytes: int = 0
    removed: int = 0
    busy: list[str] = field(default_factory=list)


def look(store: Store, rules: Retain, replays: pa.Table | None, compact: bool) -> Work:
    """Return what there is to do; nothing is changed. Anew where segments were written again while they were
    read. Raises UsageError, ArchiveError."""
    for _ in range(_ATTEMPTS):
        committed = list(manifests.list_committed(store))
        try:
            return _find_work(store, committed, rules, replays, compact)
        except DlqError:
            if manifests.are_committed(store, committed):
                raise
    raise ArchiveError(f"the segments of the archive {store.location} keep changing: run it again")


def _find_work(
    store: Store, committed: Sequence[Manifest], rules: Retain, replays: pa.Table | None, compact: bool
) -> Work:
    choice = choose(store, committed, rules, replays, now())
    unread = {manifest.stem for manifest in analyses.unread(store, committed)}
    groups = {
        source: compaction.groups(
            store, [m for m in committed if m.source == source], choice.removals, compact, unread
        )
        for source in sorted({manifest.source for manifest in committed})
    }
    segments = sum(1 for manifest in committed if manifest.rows)
    return Work(rules, choice, groups, _list_clutter(store, rules.analyses), segments)


def do(store: Store, work: Work, ledger: Callable[[], pa.Table | None]) -> Done:
    """Do it. `ledger` reads the ledger's table again, because an analysis may have been waited for since
    `look`. A crash at any point loses nothing; the next round repairs it. Raises Busy, ArchiveError."""
    done = Done()
    with store.lock("retain"), steady_segments(store):
        for source in work.groups:
            try:
                with store.lock(f"source-{source}"):
                    compaction.sweep(store, source)
                    _rewrite_all(store, work, source, ledger, done)
            except Busy as error:
                done.busy.append(str(error))
        for name in work.clutter:
            store.delete(name)
        sweep_temporaries(store)
    return done


def _rewrite_all(
    store: Store, work: Work, source: str, ledger: Callable[[], pa.Table | None], done: Done
) -> None:
    """Rewrite all groups; the caller holds the source's lock. A group that a pull has changed meanwhile waits
    for the next round."""
    fresh = {manifest.stem: manifest for manifest in manifests.list_committed(store, source)}
    groups = [g for g in work.groups[source] if all(fresh.get(manifest.stem) == manifest for manifest in g)]
    chosen = [m for group in groups for m in group if m.stem in work.choice.removals]
    replays = ledger() if chosen else None
    removals = {
        m.stem: still_chosen(store, m, work.choice.removals[m.stem], work.rules, replays) for m in chosen
    }
    for group in groups:
        leave = sum(len(removals.get(manifest.stem, ())) for manifest in group)
        if leave or len(group) > 1:
            before = sum(compaction.size_of(store, manifest) for manifest in group)
            done.bytes += before - compaction.size_of(store, compaction.rewrite(store, group, removals))
            done.removed += leave
