"""Draws docs/report.svg: what `dlq report` shows of a real archive. `python docs/picture.py FOLDER`.

FOLDER holds a dlq.toml whose archive is analyzed, for instance the one that `dlq demo --folder` leaves.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from dlq.cli.context import Context
from dlq.cli.looking import replays
from dlq.reports import report, terminal

WIDTH = 92


def main(folder: str) -> None:
    """Record the report as a terminal draws it."""
    context = Context(config=str(Path(folder) / "dlq.toml"))
    document = report.make(context.store, replays(context))
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False
    )
    console.print("$ dlq report", style="bold")
    terminal.render(console, document)
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="dlq report"), flags=re.S)
    Path(__file__).with_name("report.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
