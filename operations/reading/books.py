"""What must add up: the books of every source, and who did what."""

from contextlib import closing

from dlq.archive.user_sql import list_objects
from dlq.core.documents import Document
from dlq.operations.brokers.connecting import warn_of_ledger
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace
from dlq.replay.verify import count, verify


def verify_books(workspace: Workspace) -> Document:
    """Return whether all that was captured is accounted for once (`balanced`), and the books of each source.
    Reads the whole archive. Raises FormatTooNew, ArchiveError, UsageError without the ledger."""
    warn_of_ledger(workspace)
    books = [found.as_json() for found in verify(workspace.store, workspace.settings)]
    return {"balanced": all(found["balanced"] for found in books), "sources": books}


def count_books(workspace: Workspace) -> Document:
    """Return the same as manifests and ledger have it (`balanced`: the numbers add up). Reads no letter, so
    that it does not say whether each is what was captured. Raises as `verify_books`."""
    with closing(open_views(workspace)) as connection:
        books = [found.as_json() for found in count(connection, workspace.store, workspace.settings)]
    return {"balanced": all(found["balanced"] for found in books), "sources": books}


def list_audit(workspace: Workspace, subject: str | None = None, limit: int = 0) -> list[Document]:
    """Return who did what, when and why, the last first: to failures, plans and letters, or to the one
    `subject` (a whole id). At most `limit`; 0: all."""
    where, values = ("WHERE subject = ?", [subject]) if subject is not None else ("", [])
    most = f"LIMIT {limit}" if limit else ""
    return _read(workspace, f"SELECT * FROM audit {where} ORDER BY done_at DESC {most}", values)


def list_transactions(workspace: Workspace) -> list[Document]:
    """Return RocketMQ's transactions of the latest analysis, a row each; those checked most on top."""
    return _read(workspace, "SELECT * FROM transactions ORDER BY checks DESC, unique_key", [])


def _read(workspace: Workspace, sql: str, values: list[str]) -> list[Document]:
    with closing(open_views(workspace, with_plans="audit" in sql)) as connection:
        return list_objects(connection, sql, values)
