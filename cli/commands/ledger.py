"""`dlq ledger`: the store that remembers what was sent."""

from typing import Annotated

import typer

from dlq.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    commands = typer.Typer(no_args_is_help=True)
    commands.callback()(_about)
    commands.command()(move)
    app.add_typer(commands, name="ledger")


def _about() -> None:
    """The store that remembers what was sent."""


_OUTSIDE = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="The ledger's file, where it lies outside of the archive."),
]


def move(ctx: typer.Context, outside: _OUTSIDE = None) -> None:
    """Move the archive's own ledger (SQLite) to where ledger.url in the configuration says: a server.

    The old file is kept as ledger.db.moved. Running it again adds nothing twice.

    Example: dlq ledger move
    """
    from dlq.cli.connecting import warn_of_ledger
    from dlq.replay.ledger import move as move_ledger

    context: Context = ctx.obj
    warn_of_ledger(context)
    total, new = move_ledger(context.settings.ledger, context.store, outside)
    text = f"{total:,} replays moved, {total - new:,} of them were there already"
    context.emit({"replays": total, "new": new}, lambda: context.console.print(text))
