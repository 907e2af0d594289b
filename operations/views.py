"""What looking at letters shares: the archive's views with the ledger beside them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dlq.core.errors import UsageError
from dlq.core.failures import OF_LETTERS, OF_PLANS
from dlq.operations.desk import Desk

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dlq.core.failures import Event


def read_replays(desk: Desk, missing: Callable[[UsageError], None] | None = None) -> "pa.Table | None":
    """Return the ledger as a table; None when nothing was ever replayed, or it is out of reach, which
    `missing` is told, else the listener."""
    from dlq.operations.connecting import warn_of_ledger
    from dlq.replay.ledger import as_arrow

    warn_of_ledger(desk)
    try:
        return as_arrow(desk.settings.ledger, desk.store)
    except UsageError as error:
        if missing is not None:
            missing(error)
        else:
            desk.listener.complain(f"what was replayed is not known here: {error}")
        return None


def read_events(desk: Desk) -> "list[Event]":
    """Return what people said of failures; nothing where the ledger is out of reach, which `read_replays`
    tells."""
    from dlq.replay import ledger

    try:
        return ledger.events(desk.settings.ledger, desk.store)
    except UsageError:
        return []


def open_views(
    desk: Desk, with_plans: bool = False, memory: str | None = None
) -> "duckdb.DuckDBPyConnection":
    """Return a read-only connection over the archive and the ledger. The view `audit` has who made plans only
    `with_plans`, each of which is a file to read. `memory` is for those who are many."""
    from dlq.archive.views import MEMORY, connect, say
    from dlq.replay import planfile, still_queued

    plans = planfile.list_makers(desk.store) if with_plans else ()
    if desk.views is not None:
        if with_plans:
            say(desk.views, _make_audit([*read_events(desk), *plans]))
        return desk.views
    known = read_replays(desk)  # first: it warns of a password in the clear
    queued = still_queued.find_queued(desk.store, desk.settings)
    said = _make_audit([*read_events(desk), *plans])
    return connect(desk.store, known, audit=said, queued=queued, memory=memory or MEMORY)


def _make_audit(said: "Iterable[Event]") -> "pa.Table":
    """Return what people said as the table of the view `audit`."""
    import pyarrow as pa

    from dlq.archive.schema import AUDIT

    rows = [
        {
            **event._asdict(),
            "done_at": event.at,
            "about": _tell_subject(event),
        }
        for event in said
    ]
    return pa.Table.from_pylist(rows, AUDIT)


def count_not_judged(desk: Desk) -> int:
    """Return how many letters no analysis has judged yet."""
    from dlq.archive import analyses

    return sum(manifest.rows for manifest in analyses.unread(desk.store))


def _tell_subject(event: "Event") -> str:
    """Return what an event is about: plan, letter or failure."""
    if event.action in OF_PLANS:
        return "plan"
    return "letter" if event.action in OF_LETTERS else "failure"
