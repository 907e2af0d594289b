"""What ls, show, query and report share: the archive's views with the ledger beside them."""

from typing import TYPE_CHECKING

from dlq.cli.context import Context

if TYPE_CHECKING:
    import duckdb


def open_views(context: Context, analysis: str | None = None) -> "duckdb.DuckDBPyConnection":
    """A read-only connection over the archive and the ledger; `analysis` instead of the latest."""
    from dlq.archive.views import connect
    from dlq.replay.ledger import as_arrow

    return connect(context.store, as_arrow(context.settings.ledger, context.store), analysis)
