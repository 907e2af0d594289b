"""What letters died of, as a small table for a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.cli.context import Context
from dlq.core.text import for_terminal, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from dlq.operations.triage import Triage

_SHOWN = 10
_LONG = 500
_NUMBER = 12
"""Columns that the number of letters and the gaps take."""


def show_died(context: Context, died: "Triage") -> None:
    """Show the failures of letters that were just captured; in words, where the letters are too many."""
    if died.causes is None and died.letters:
        context.say(f"letters not classified yet: {died.letters:,}; run dlq analyze")
    shown, rest = died.failures[:_SHOWN], died.failures[_SHOWN:]
    if shown:
        _draw(context.console, shown)
    if rest:
        kinds = "1 more failure" if len(rest) == 1 else f"{len(rest):,} more failures"
        context.console.print(f"{sum(letters for letters, *_ in rest):,} in {kinds}")


def _draw(console: "Console", failures: Sequence[tuple[int, str, str]]) -> None:
    from rich.table import Table

    room = max(20, console.width - max(len(cause) for _letters, cause, _text in failures) - _NUMBER)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("letters", "died of", "failure"):
        table.add_column(column, justify="right" if column == "letters" else "left", no_wrap=True)
    for letters, cause, text in failures:
        table.add_row(f"{letters:,}", cause, shorten(for_terminal(text[:_LONG]), room))
    console.print()
    console.print(table)


def show_came_back(context: Context, found: Sequence[Mapping[str, Any]]) -> None:
    """Show letters of a replay that died again, a line a letter."""
    if not found:
        return
    context.console.print("\ncame back, the newest")
    for one in found:
        line = (
            f"  {one['record_id'][:12]}  {one['cause'] or 'not classified'}  {for_terminal(one['failure'])}"
        )
        context.console.print(shorten(line, max(40, context.console.width)), no_wrap=True, soft_wrap=True)
