"""Rows for eyes: a table where it fits the terminal, else one row after the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2


def draw(console: "Console", columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text that is safe for a terminal. Nothing is cut off."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    if sum(widths) + _GAP * (len(columns) - 1) <= console.width or len(columns) == 1 or not rows:
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        console.print(table)
        return
    names = max(map(cell_len, columns))
    for number, row in enumerate(rows, 1):
        console.print(Text(f"row {number}", style="bold"))
        for name, cell in zip(columns, row, strict=True):
            console.print(Text.assemble((f"  {name:<{names}}  ", "dim"), cell), soft_wrap=True)
