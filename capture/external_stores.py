"""Snapshots of the stores that `[evidence.NAME]` names, taken into the archive before an analysis."""

from collections.abc import Collection
from fnmatch import fnmatchcase

from dlq.archive import manifests
from dlq.archive import store_facts as snapshots
from dlq.archive.storage.store import Store
from dlq.archive.store_facts import Snapshot
from dlq.connectors import deadline
from dlq.core import clock
from dlq.core.clock import Clock
from dlq.core.errors import DlqError
from dlq.core.settings import Evidence, Settings


def take(store: Store, settings: Settings, now: Clock = clock.now) -> tuple[Snapshot, ...]:
    """Return a snapshot of each store that knows letters of the archive.

    A store that does not answer costs the others nothing: its snapshot holds the error.
    """
    if not settings.evidence:
        return ()
    captured = {manifest.source for manifest in manifests.list_committed(store) if manifest.rows}
    asked = [one for one in settings.evidence.values() if _knows(one, captured)]
    return tuple(_take(store, one, now()) for one in asked)


def _knows(settings: Evidence, sources: Collection[str]) -> bool:
    return any(fnmatchcase(source, pattern) for source in sources for pattern in settings.sources)


@deadline.with_deadline
def _take(store: Store, settings: Evidence, moment: int) -> Snapshot:
    from dlq.connectors.external_stores import stores  # which loads SQLAlchemy

    try:
        taken = snapshots.write(store, settings.name, moment, stores.read(settings))
    except DlqError as error:
        return Snapshot(settings.name, moment, error=str(error))
    for name in list(snapshots.list_outdated(store)):
        store.delete(name)
    return taken
