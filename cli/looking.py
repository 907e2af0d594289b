"""What ls, show, query and report share: the archive's views with the ledger beside them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dlq.cli.context import Context
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def replays(context: Context, missing: Callable[[UsageError], None] | None = None) -> "pa.Table | None":
    """The ledger as a table; None when nothing was ever replayed, or it is out of reach, which `missing` is
    told, else stderr."""
    from dlq.replay.ledger import as_arrow

    try:
        return as_arrow(context.settings.ledger, context.store)
    except UsageError as error:
        if missing is not None:
            missing(error)
        else:
            context.complain(f"what was replayed is not known here: {error}")
        return None


def open_views(context: Context) -> "duckdb.DuckDBPyConnection":
    """A read-only connection over the archive and the ledger."""
    from dlq.archive.views import connect

    return connect(context.store, replays(context))
