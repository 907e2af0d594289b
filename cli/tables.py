"""Rows for eyes: a table that fits the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
_SHORTEST = 8
"""No column is made narrower than this; beyond it the last ones are left out."""


def draw(console: "Console", columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Print rows of text that is safe for a terminal; where they do not fit into one, the widest columns are
    shortened and the last ones left out. Says in words what is not seen, "" where all is."""
    from rich.cells import cell_len
    from rich.text import Text

    wanted = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    is_narrow = console.is_terminal and len(columns) > 1
    widths = _fitting(wanted, console.width) if is_narrow else wanted
    for number, row in enumerate([columns, *rows]):
        line = (" " * _GAP).join(map(_cell, row, widths)).rstrip()
        console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
    return _unseen(columns, wanted, widths)


def _cell(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _fitting(wanted: Sequence[int], room: int) -> list[int]:
    """A width for each column that fits, from the first on."""
    widths = list(wanted)
    while len(widths) > 1 and sum(min(w, _SHORTEST) + _GAP for w in widths) - _GAP > room:
        widths.pop()
    while sum(widths) + _GAP * (len(widths) - 1) > room and max(widths) > _SHORTEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _unseen(columns: Sequence[str], wanted: Sequence[int], widths: Sequence[int]) -> str:
    shortened = [
        name for name, all_of_it, width in zip(columns, wanted, widths, strict=False) if width < all_of_it
    ]
    said = {"shortened": shortened, "left out": columns[len(widths) :]}
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in said.items() if names)
