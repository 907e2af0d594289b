"""What ls, show, query and report share: the archive's views with the ledger beside them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dlq.cli.context import Context
from dlq.core.errors import UsageError
from dlq.core.failures import OF_PLANS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dlq.core.failures import Event


def replays(context: Context, missing: Callable[[UsageError], None] | None = None) -> "pa.Table | None":
    """The ledger as a table; None when nothing was ever replayed, or it is out of reach, which `missing` is
    told, else stderr."""
    from dlq.cli.connecting import warn_of_ledger
    from dlq.replay.ledger import as_arrow

    warn_of_ledger(context)
    try:
        return as_arrow(context.settings.ledger, context.store)
    except UsageError as error:
        if missing is not None:
            missing(error)
        else:
            context.complain(f"what was replayed is not known here: {error}")
        return None


def events(context: Context) -> "list[Event]":
    """What people said of failures; nothing where the ledger is out of reach, which `replays` tells."""
    from dlq.replay import ledger

    try:
        return ledger.events(context.settings.ledger, context.store)
    except UsageError:
        return []


def open_views(context: Context, with_plans: bool = False) -> "duckdb.DuckDBPyConnection":
    """A read-only connection over the archive and the ledger. The view `audit` has who made plans only
    `with_plans`, each of which is a file to read."""
    from dlq.archive.views import connect
    from dlq.replay import planfile, still_queued

    plans = planfile.made(context.store) if with_plans else ()
    known = replays(context)  # first: it warns of a password in the clear
    queued = still_queued.queued(context.store, context.settings)
    said = audit([*events(context), *plans])
    return connect(context.store, known, audit=said, queued=queued)


def audit(said: "Iterable[Event]") -> "pa.Table":
    """What people said as the table of the view `audit`."""
    import pyarrow as pa

    from dlq.archive.schema import AUDIT

    rows = [
        {
            **event._asdict(),
            "done_at": event.at,
            "about": "plan" if event.action in OF_PLANS else "failure",
        }
        for event in said
    ]
    return pa.Table.from_pylist(rows, AUDIT)


def say_what_is_not_judged(context: Context) -> None:
    """How many letters have no verdict, in a line for people."""
    from dlq.archive import analyses

    if letters := sum(manifest.rows for manifest in analyses.unread(context.store)):
        have = "1 letter has" if letters == 1 else f"{letters:,} letters have"
        context.say(f"{have} no verdict yet: dlq analyze")
