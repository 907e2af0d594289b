"""Draws docs/report.svg and docs/report.png: what `dlq report` shows of a real archive.

    python docs/night.py FOLDER      plays a bad night on a real RabbitMQ
    python docs/picture.py FOLDER    draws it

FOLDER holds a dlq.toml whose archive is analyzed.
"""

import io
import os
import re
import sys
from pathlib import Path

from rich.console import Console

from dlq.cli.context import Context
from dlq.operations.reading.reporting import ReportWanted, make_report
from dlq.reports import report
from dlq.reports.formats import terminal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.servers.chromium import chromium

HERE = Path(__file__).parent.resolve()
WIDTH = 100
PAGE = (1100, 1075)
"""Pixels of the page that are shown."""


def main(folder: str) -> None:
    """The report as a terminal draws it, and the beginning of the page in a browser."""
    os.chdir(folder)
    context = Context(config="dlq.toml")
    document = make_report(context.workspace, ReportWanted(with_letters=True))
    _terminal(document)
    report.write(document, "html", "report.html")
    with chromium() as page:
        page.open(Path("report.html").resolve().as_uri(), *PAGE)
        page.picture(HERE / "report.png", whole=False)


def _terminal(document: report.Document) -> None:
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False
    )
    console.print("$ dlq report", style="bold")
    terminal.render(console, document)
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="dlq report"), flags=re.S)
    (HERE / "report.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
