"""What looking at letters shares: the archive's views with the ledger beside them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from dlq.core.errors import DlqError, LedgerUnreachable, UsageError
from dlq.core.failures import OF_LETTERS, OF_PLANS
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dlq.core.failures import Event


def read_replays(
    workspace: Workspace,
    missing: Callable[[DlqError], None] | None = None,
    record_ids: Collection[str] | None = None,
) -> "pa.Table | None":
    """Return the ledger as a table, or what it has of these letters at least; None when nothing was ever
    replayed, or it is out of reach, which `missing` is told, else the listener. Raises LedgerUnreachable
    without `missing`."""
    from dlq.operations.brokers.connecting import warn_of_ledger
    from dlq.replay.ledger import as_arrow

    warn_of_ledger(workspace)
    try:
        return as_arrow(workspace.settings.ledger, workspace.store, record_ids)
    except (UsageError, LedgerUnreachable) as error:
        if missing is not None:
            missing(error)
        elif isinstance(error, LedgerUnreachable):
            raise
        else:
            workspace.listener.complain(f"what was replayed is not known here: {error}")
        return None


def read_said(workspace: Workspace) -> "Sequence[Event]":
    """Return what people said of failures, plans and letters. Raises UsageError where the ledger is out of
    reach."""
    from dlq.replay import ledger

    known = workspace.said
    return ledger.events(workspace.settings.ledger, workspace.store) if known is None else known


def read_events(workspace: Workspace) -> "Sequence[Event]":
    """Do `read_said`; nothing where the ledger is out of reach, which `read_replays` tells."""
    try:
        return read_said(workspace)
    except UsageError:
        return []


def open_views(
    workspace: Workspace, with_plans: bool = False, memory: str | None = None, with_ledger: bool = True
) -> "duckdb.DuckDBPyConnection":
    """Return a read-only connection over the archive and the ledger. The view `audit` has who made plans only
    `with_plans`, each of which is a file to read. `memory` is for those who are many. Who asks of few letters
    opens them without the ledger, and adds what it has of them."""
    from dlq.archive.views import MEMORY, connect, say
    from dlq.replay import still_queued

    plans = _list_makers(workspace) if with_plans else ()
    if workspace.views is not None:
        if with_plans:
            say(workspace.views, _make_audit([*read_events(workspace), *plans]))
        return workspace.views
    known = read_replays(workspace) if with_ledger else None  # first: it warns of a password in the clear
    queued = still_queued.find_queued(workspace.store, workspace.settings)
    said = _make_audit([*read_events(workspace), *plans]) if with_ledger else None
    return connect(workspace.store, known, audit=said, queued=queued, memory=memory or MEMORY)


def look_again(workspace: Workspace, connection: "duckdb.DuckDBPyConnection") -> None:
    """Let a connection show what the ledger says by now; the archive has stayed as it was."""
    from dlq.archive.views import say, show_replays

    show_replays(connection, read_replays(workspace))
    say(connection, _make_audit(read_events(workspace)))


def _list_makers(workspace: Workspace) -> "Iterable[Event]":
    from dlq.replay.plans import planfile

    return planfile.list_makers(workspace.store)


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


def count_not_classified(workspace: Workspace) -> int:
    """Return how many letters no analysis has classified yet."""
    from dlq.archive import analyses, manifests

    committed = manifests.list_committed(workspace.store)
    return sum(manifest.rows for manifest in analyses.unread(workspace.store, committed))


def _tell_subject(event: "Event") -> str:
    """Return what an event is about: plan, letter or failure."""
    if event.action in OF_PLANS:
        return "plan"
    return "letter" if event.action in OF_LETTERS else "failure"
