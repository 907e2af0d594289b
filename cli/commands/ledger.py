"""`dlq ledger`: the store that remembers what was sent."""

from typing import Annotated

import typer

from dlq.cli.context import Context


def register(app: typer.Typer) -> None:
    """Add the command."""
    commands = typer.Typer(no_args_is_help=True)
    commands.callback()(_group)
    commands.command()(move)
    app.add_typer(commands, name="ledger")


def _group() -> None:
    """Move the ledger, the record of what was sent."""


_OUTSIDE = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="The ledger's file, if it is outside the archive."),
]


def move(ctx: typer.Context, outside: _OUTSIDE = None) -> None:
    """Move the archive's own ledger (SQLite) to the server at ledger.url.

    The old file is kept as ledger.db.moved. Running it again adds nothing twice.

    Example: dlq ledger move
    """
    from dlq.operations.housekeeping import move_ledger

    context: Context = ctx.obj
    moved = move_ledger(context.workspace, outside)
    text = (
        f"{moved['replays']:,} replays moved, {moved['replays'] - moved['new']:,} of them were there already"
    )
    context.emit(moved, lambda: context.console.print(text))
