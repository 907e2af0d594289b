"""Letters and losses that need no replay are closed, and opened again."""

from collections.abc import Collection, Sequence
from contextlib import closing

from dlq.archive import losses, user_sql
from dlq.core.errors import UsageError
from dlq.core.failures import check_length
from dlq.operations.brokers.connecting import warn_of_ledger
from dlq.operations.reading.selecting import Selection, choose
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace
from dlq.replay import dismissals, ledger

_OPEN = ("returned", "refused", "planned", None)
"""What the ledger says of letters that may be closed: of others a replay has an effect, or may have."""
_Counts = dict[str, int]


def why_not_dismiss(state: str | None) -> UsageError | None:
    """Return why a letter of this `replay_state` stays as it is; None: it may be closed."""
    return None if state in _OPEN else UsageError("dismissed before, sent, or set aside")


def dismiss_letters(workspace: Workspace, ids: Sequence[str], selection: Selection, reason: str) -> _Counts:
    """Close letters, named by id or selected: how many were closed now (`dismissed`), and how many stay as
    they are (`known`). Raises UsageError."""
    _check_reason(reason)
    found = _find(workspace, ids, selection)
    if not found:
        return {"dismissed": 0, "known": 0}
    warn_of_ledger(workspace)
    may = [record_id for record_id, state in found.items() if why_not_dismiss(state) is None]
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        closed = dismissals.dismiss(book, may, reason, who=workspace.actor)
    return {"dismissed": closed, "known": len(found) - closed}


def reopen_letters(workspace: Workspace, ids: Sequence[str], selection: Selection) -> _Counts:
    """Open letters again: how many were closed (`reopened`), and how many were not (`known`). Raises
    UsageError."""
    found = _find(workspace, ids, selection)
    if not found:
        return {"reopened": 0, "known": 0}
    warn_of_ledger(workspace)
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        reopened = dismissals.undo(book, found)
    return {"reopened": reopened, "known": len(found) - reopened}


def dismiss_losses(workspace: Workspace, sources: Collection[str], reason: str) -> _Counts:
    """Close what is known to be lost of these sources: facts of the archive, which are closed there. Raises
    UsageError."""
    _check_reason(reason)
    _check_lost(workspace, sources)
    closed = sum(losses.dismiss(workspace.store, source, reason, workspace.actor) for source in sources)
    return {"dismissed": closed, "known": 0}


def reopen_losses(workspace: Workspace, sources: Collection[str]) -> _Counts:
    """Open what is known to be lost of these sources again. Raises UsageError."""
    _check_lost(workspace, sources)
    return {
        "reopened": sum(losses.reopen(workspace.store, one, workspace.actor) for one in sources),
        "known": 0,
    }


def _check_reason(reason: str) -> None:
    """Check a reason. Raises UsageError for none, and for what no ledger should keep with each letter."""
    if not reason.strip():
        raise UsageError('say why they need no replay: --reason "…"')
    check_length(reason)


def _check_lost(workspace: Workspace, sources: Collection[str]) -> None:
    if unknown := set(sources) - {loss.source for loss in losses.read_losses(workspace.store)}:
        raise UsageError(f"{', '.join(sorted(unknown))} has no known losses; check the name of the source")


def _find(workspace: Workspace, ids: Sequence[str], selection: Selection) -> dict[str, str | None]:
    """Record id -> what the ledger says of it."""
    if not ids and selection.is_all:
        raise UsageError(
            "no letters are chosen; name them by id, or choose them with --where, --source or another filter"
        )
    with closing(open_views(workspace)) as connection:
        chosen = user_sql.condition(choose(workspace, connection, ids, selection))
        sql = f"SELECT DISTINCT record_id, replay_state FROM letters WHERE {chosen}"
        return dict(user_sql.run(connection, sql).rows)
