"""dlq dismiss: letters that need no replay are closed."""

import getpass
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion, selecting
from dlq.cli.connecting import warn_of_ledger
from dlq.cli.context import Context
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.replay.ledger.contract import Ledger

_OPEN = ("returned", "refused", "planned", None)
"""What the ledger says of letters that may be closed: of others a replay has an effect, or may have."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dismiss")(dismiss)


def dismiss(
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="These letters (8 or more digits of each id)."),
    ] = None,
    where: selecting.Where = None,
    source: selecting.Sources = None,
    since: selecting.Since = None,
    incident: selecting.Incident = None,
    failure: selecting.Failure = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why they need no replay.")
    ] = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            autocompletion=completion.sources,
            help="Instead of letters: what is known to be lost of this source.",
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Open them again.")] = False,
) -> None:
    """Close letters that need no replay: plans leave them out, thresholds and "waiting" do not count them.

    The ledger remembers who did it, when and why; dlq verify counts them as dismissed. Letters that went
    back, or may have, stay as they are.

    Example: dlq dismiss --where "cause = 'expired'" --reason "prices are sent anew each hour"
    """
    from dlq.replay import ledger

    context: Context = ctx.obj
    if not undo and not (reason or "").strip():
        raise UsageError('say why they need no replay: --reason "…"')
    if lost:
        _lost(context, lost, reason or "", undo)
        return
    selection = selecting.Selection(where, source, since, incident, failure)
    if not ids and selection.is_all:
        raise UsageError("which letters? Name them by id, or choose them with --where, --source or the like")
    found = _found(context, ids or [], selection)
    if not found:
        context.say("no letters")
        return
    warn_of_ledger(context)
    with ledger.opened(context.settings.ledger, context.store) as book:
        if undo:
            _undo(context, book, found)
        else:
            _dismiss(context, book, found, str(reason))


def _lost(context: Context, sources: Collection[str], reason: str, undo: bool) -> None:
    """Losses are facts of the archive: they are closed there."""
    from dlq.archive import losses

    if unknown := set(sources) - {loss.source for loss in losses.every(context.store)}:
        raise UsageError(f"nothing is known to be lost of {', '.join(sorted(unknown))}")
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    if undo:
        told = sum(losses.reopen(context.store, source, who) for source in sources)
    else:
        told = sum(losses.dismiss(context.store, source, reason, who) for source in sources)
    document = {"reopened" if undo else "dismissed": told, "known": 0}
    what = "open again" if undo else "closed"
    context.emit(document, lambda: context.console.print(f"{told:,} loss{'' if told == 1 else 'es'} {what}"))


def _found(context: Context, ids: list[str], selection: selecting.Selection) -> dict[str, str | None]:
    """Record id -> what the ledger says of it."""
    from dlq.archive import user_sql
    from dlq.cli.views import open_views

    with open_views(context) as connection:
        chosen = user_sql.condition(selecting.chosen(context, connection, ids, selection))
        sql = f"SELECT DISTINCT record_id, replay_state FROM letters WHERE {chosen}"
        return dict(user_sql.run(connection, sql).rows)


def _dismiss(context: Context, book: "Ledger", found: dict[str, str | None], reason: str) -> None:
    from dlq.replay import dismissals

    may = [record_id for record_id, state in found.items() if state in _OPEN]
    closed = dismissals.dismiss(book, may, reason)
    known = len(found) - closed
    context.emit(
        {"dismissed": closed, "known": known}, lambda: context.console.print(_told(closed, "closed"))
    )
    if known:
        context.say(f"{_told(known, 'left alone')}: dismissed before, sent, or set aside")


def _undo(context: Context, book: "Ledger", found: Collection[str]) -> None:
    from dlq.replay import dismissals

    reopened = dismissals.undo(book, found)
    document = {"reopened": reopened, "known": len(found) - reopened}
    context.emit(document, lambda: context.console.print(_told(reopened, "open again")))


def _told(count: int, what: str) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'} {what}"
