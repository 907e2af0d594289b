"""Incidents on a terminal."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from dlq.core.documents import Document
from dlq.core.text import for_terminal
from dlq.reports.incidents import describe, end_of, marks, places_of


def table(rows: Iterable[Document]) -> Table:
    """Return one incident in two lines: what happened, and where; everything of strangers is escaped."""
    drawn = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name, right in (("incident", False), ("until", False), ("letters", True)):
        drawn.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="fold")
    drawn.add_column("what, and where", overflow="fold")
    for row in rows:
        said = Text.assemble(
            *((f"{mark} ", "bold red") for mark in marks(row)),
            for_terminal(describe(row)),
            (f"\n{for_terminal(places_of(row))}", "dim"),
        )
        drawn.add_row(for_terminal(row["incident_id"]), end_of(row), f"{row['size']:,}", said)
    return drawn
