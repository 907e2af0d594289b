"""What ls, show, query and report share: the archive's views with the ledger beside them."""

from typing import TYPE_CHECKING

from dlq.cli.context import Context

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def replays(context: Context) -> "pa.Table | None":
    """The ledger as a table; None when nothing was ever replayed."""
    from dlq.replay.ledger import as_arrow

    return as_arrow(context.settings.ledger, context.store)


def open_views(context: Context) -> "duckdb.DuckDBPyConnection":
    """A read-only connection over the archive and the ledger."""
    from dlq.archive.views import connect

    return connect(context.store, replays(context))
