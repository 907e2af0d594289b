"""Rows for eyes: a table that fits the terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_GAP = 2
_SHORTEST = 12
"""No text is made narrower than this, which of an id still addresses its letter."""
_GOES_FIRST = ("pull_id", "segments", "seconds", "recaptured", "oldest", "first")
"""Columns that people miss least."""
_WRAPS = ("when", "where", "why", "progress")
"""Sentences, conditions and states, which half say something else: they go on in the next line."""
_LINE = 24
"""What wraps gives way first, down to this."""
_NUMBER = re.compile(r"[-+]?[0-9.,]{0,20}%?")

_Cells = Mapping[str, Sequence[str]]
_Widths = Mapping[str, int]


def draw(console: "Console", columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Print rows of text that is safe for a terminal; where they do not fit into one, the widest texts are
    shortened, numbers never, and columns left out. Says in words what is not seen, "" where all is."""
    from rich.cells import cell_len
    from rich.text import Text

    cells = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    wanted = {name: max(map(cell_len, (name, *texts))) for name, texts in cells.items()}
    is_narrow = console.is_terminal and len(cells) > 1
    widths = _fit_widths(cells, wanted, console.width) if is_narrow else wanted
    shown = zip(*([name, *cells[name]] for name in widths), strict=True)
    for number, row in enumerate(shown):
        for line in _lines(console, row, widths):
            console.print(Text(line, style="" if number else "bold"), soft_wrap=True)
    return _unseen(wanted, widths)


def _lines(console: "Console", row: Sequence[str], widths: _Widths) -> Iterator[str]:
    """Yield a row's lines, mostly one."""
    from rich.text import Text

    parts = [
        [line.plain.rstrip() for line in Text(text).wrap(console, width)] if name in _WRAPS else [text]
        for text, (name, width) in zip(row, widths.items(), strict=True)
    ]
    for line in zip_longest(*parts, fillvalue=""):
        yield (" " * _GAP).join(map(_cell, line, widths.values())).rstrip()


def _cell(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _fit_widths(cells: _Cells, wanted: _Widths, room: int) -> _Widths:
    """Return a width for each column that fits; a plan's id, which the next command takes, stays whole."""
    least = {
        name: width
        if name == "plan" or all(map(_NUMBER.fullmatch, cells[name]))
        else min(width, _LINE if name in _WRAPS else _SHORTEST)
        for name, width in wanted.items()
    }
    kept = _choose_columns(cells, wanted, least, room)
    widths = {name: min(wanted[name], max(room, least[name])) for name in kept}  # and a step for each cell
    while _total(widths) > room and (wide := [name for name in kept if widths[name] > least[name]]):
        widths[max(wide, key=lambda name: (name in _WRAPS, widths[name]))] -= 1
    return widths


def _choose_columns(cells: _Cells, wanted: _Widths, least: _Widths, room: int) -> Sequence[str]:
    """Return the columns that find room. Empty ones, and those that are missed least, go before anything is
    shortened; the last ones where that is not enough."""
    kept = list(wanted)
    empty = [name for name, texts in cells.items() if texts and not any(texts)]
    for name in dict.fromkeys((*empty, *_GOES_FIRST)):
        if name in kept and len(kept) > 1 and _total({name: wanted[name] for name in kept}) > room:
            kept.remove(name)
    while len(kept) > 1 and _total({name: least[name] for name in kept}) > room:
        kept.pop()
    return kept


def _total(widths: _Widths) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _unseen(wanted: _Widths, widths: _Widths) -> str:
    said = {
        "shortened": [name for name, width in widths.items() if width < wanted[name] and name not in _WRAPS],
        "left out": [name for name in wanted if name not in widths],
    }
    return "; ".join(f"{what}: {_list_first(names)}" for what, names in said.items() if names)


def _list_first(names: Sequence[str]) -> str:
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
