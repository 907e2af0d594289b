"""Incidents on a terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from dlq.core.text import for_terminal
from dlq.reports.incidents import marks, until, what, where


def table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One incident in two lines: what happened, and where; everything of strangers is escaped."""
    drawn = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name, right in (("incident", False), ("until", False), ("letters", True)):
        drawn.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="fold")
    drawn.add_column("what, and where", overflow="fold")
    for row in rows:
        said = Text.assemble(
            *((f"{mark} ", "bold red") for mark in marks(row)),
            for_terminal(what(row)),
            (f"\n{for_terminal(where(row))}", "dim"),
        )
        drawn.add_row(for_terminal(row["incident_id"]), until(row), f"{row['size']:,}", said)
    return drawn
