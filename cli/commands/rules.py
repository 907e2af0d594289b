"""dlq rules: the table by which causes are decided."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dlq.cli.context import Context


def rules(ctx: typer.Context) -> None:
    """Print the cause rules in their order; your own come first.

    Example: dlq rules -o csv
    """
    from dlq.analyzers.rules import COLUMNS, table

    context: Context = ctx.obj
    context.emit_rows(COLUMNS, [[row[name] for name in COLUMNS] for row in table(context.settings.rules)])
