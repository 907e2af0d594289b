"""The archive is kept from growing for ever, and its ledger moves."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from dlq.archive import housekeeping
from dlq.operations.brokers.connecting import warn_of_ledger
from dlq.operations.workspace import Workspace
from dlq.replay import ledger


class Retained(NamedTuple):
    """What was removed, or would be, as `dlq retain` prints it; `busy`: sources whose letters wait for the
    next time, since something else was at work on them."""

    document: dict[str, Any]
    busy: Sequence[str] = ()


def retain(workspace: Workspace, apply: bool = False, compact: bool = False) -> Retained:
    """Remove replayed letters by age or size, and old analyses; without `apply` nothing is changed. Raises
    DlqError."""
    rules = workspace.settings.retain
    if rules.max_age is None and rules.max_size is None:
        workspace.listener.say("[retain] has neither max_age nor max_size: no letter is removed")
    warn_of_ledger(workspace)
    read = partial(ledger.as_arrow, workspace.settings.ledger, workspace.store)
    work = housekeeping.look(workspace.store, rules, read(), compact)
    done = housekeeping.do(workspace.store, work, read) if apply else None
    removed = work.choice.removed if done is None else done.removed
    document = {
        "removed": removed,
        "kept": work.choice.kept + work.choice.removed - removed,
        "bytes": work.choice.bytes if done is None else done.bytes,
        "segments": work.segments_after,
        "segments_before": work.segments,
        "clutter": len(work.clutter),
        "applied": apply,
    }
    return Retained(document, done.busy if done else ())


def move_ledger(workspace: Workspace, outside: str | None = None) -> dict[str, int]:
    """Move the archive's own ledger (a file, or the one `outside`) to where the configuration says: how many
    replays it has (`replays`), and how many of them are `new` there. Raises UsageError, ArchiveError."""
    warn_of_ledger(workspace)
    total, new = ledger.move(workspace.settings.ledger, workspace.store, outside)
    return {"replays": total, "new": new}
