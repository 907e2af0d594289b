"""The report on a terminal: the answer first, then what it rests on. Fits 80 columns, uses more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlq.core.documents import Document
from dlq.core.text import for_terminal, shorten
from dlq.core.values.units import human_bytes, human_seconds
from dlq.reports.failures import stands
from dlq.reports.formats import incidents_text, sparkline
from dlq.reports.headline import basis, failure, minutes, sentences
from dlq.reports.letters.letter_text import ADVICE_STYLES

_WIDE_FROM = 110
_STANDS = 24
"""So wide may be a state and who has it."""
_BESIDE_BAR = 41
"""What all columns of the causes but the name and the bar take."""


def render(console: Console, document: Document) -> None:
    """Print the report; everything in it that strangers wrote is escaped here."""
    answer, *details = sentences(document)
    console.print(Text(_safe(answer), style="bold"))
    for sentence in details:
        console.print(Text(_safe(sentence)))
    for title, draw in _SECTIONS:
        content = draw(document, console.width)
        if content is not None:
            console.print(Text(f"\n{title}", style="bold cyan"), Padding(content, (0, 0, 0, 2), expand=False))
    _next(console, document["next"])
    console.print(Text(f"\n{_safe(basis(document))}", style="dim"))


def _safe(value: Any) -> str:
    return "" if value is None else for_terminal(str(value))


def _causes(document: Document, width: int) -> RenderableType | None:
    table = _table("cause", ">letters", ">share", "", "since")
    longest = max((len(_safe(row["name"])) for row in document["causes"]), default=0)
    bar = max(5, min(40, width - longest - _BESIDE_BAR))
    for row in document["causes"]:
        full = Text("█" * max(1, round(bar * row["share"])), style="cyan")
        table.add_row(
            _safe(row["name"]), f"{row['letters']:,}", f"{row['share']:.1%}", full, _first_death(row, width)
        )
    return table if table.row_count else None


def _first_death(row: Document, width: int) -> str:
    """Return when the first letter of a row died, without the year where there is little room."""
    since = minutes(row["first"])
    return since if width >= _WIDE_FROM or not row["first"] else since[5:]


def _incidents(document: Document, _width: int) -> RenderableType | None:
    rows = document["incidents"]
    return incidents_text.table(rows) if rows else None


def _timeline(document: Document, width: int) -> RenderableType | None:
    drawn = sparkline.draw(document["timeline"], width - 4)
    return drawn and Text.assemble((drawn.bars, "cyan"), "\n", (drawn.axis, "dim"), "\n", drawn.note)


def _matrix(document: Document, width: int) -> RenderableType | None:
    """Return causes by source; the sources beyond what fits are summed up."""
    sources = [row["source"] for row in document["sources"]]
    if len(sources) < 2:
        return None
    fitting = max(1, min(len(sources), (width - 34) // 14))
    shown, rest = sources[:fitting], set(sources[fitting:])
    counts = {(row["cause"], row["source"]): row["letters"] for row in document["matrix"]}
    table = _table(
        "cause", *(f">{shorten(_safe(name), 14)}" for name in shown), *([">others"] if rest else [])
    )
    for row in document["causes"]:
        cells = [counts.get((row["cause"], name), 0) for name in shown]
        cells += [sum(counts.get((row["cause"], name), 0) for name in rest)] if rest else []
        table.add_row(_safe(row["name"]), *(f"{n:,}" if n else "·" for n in cells))
    table.add_row(
        "size", *(human_bytes(row["body_bytes"] or 0) for row in document["sources"][:fitting]), style="dim"
    )
    return table


def _fingerprints(document: Document, width: int) -> RenderableType | None:
    has_lives = any(row["state"] != "new" for row in document["fingerprints"])
    table = _table(">letters", "example", "since", *(["state"] if has_lives else []), "failure")
    for row in document["fingerprints"]:
        name, message = failure(row)
        said = Text.assemble(
            (_safe(name.rpartition(".")[2]), "red"), f": {_safe(message)}" if message else ""
        )
        table.add_row(
            f"{row['letters']:,}",
            _safe(row["example"])[:12],
            _first_death(row, width),
            *([shorten(_safe(stands(row)), _STANDS)] if has_lives else []),
            said,
        )
    return table if table.row_count else None


def _advice(document: Document, _width: int) -> RenderableType | None:
    table = _table("advice", ">letters", ">waiting", "means")
    for row in document["advice"]:
        style = ADVICE_STYLES.get(row["advice"], "")
        table.add_row(
            Text(_safe(row["advice"]), style=style),
            f"{row['letters']:,}",
            f"{row['waiting']:,}",
            row["meaning"],
        )
    return table if table.row_count else None


def _rows(name: str, *columns: str) -> Callable[[Document, int], RenderableType | None]:
    """Return a section that shows a list of the document as it is."""

    def draw(document: Document, _width: int) -> RenderableType | None:
        table = _table(*columns)
        for row in document[name]:
            table.add_row(*(_cell(row[column.lstrip(">")]) for column in columns))
        return table if table.row_count else None

    return draw


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else _safe(value)


def _replays(document: Document, width: int) -> RenderableType | None:
    if all(row["replay_state"] == "none" for row in document["replay_states"]):
        return None
    return _rows("replay_states", "replay_state", ">letters")(document, width)


def _retention(document: Document, _width: int) -> RenderableType | None:
    table = _table("source", ">letters", "deleted from", "to", "by")
    for row in document["retention"]:
        by = f"{row['because']}, {human_seconds(row['kept_seconds'])}"
        table.add_row(
            _safe(row["source"]), f"{row['letters']:,}", minutes(row["first"]), minutes(row["last"]), by
        )
    return table if table.row_count else None


def _compare(document: Document, _width: int) -> RenderableType | None:
    compared = document.get("compare")
    if compared is None:
        return None
    table = _table("change", ">before", ">now", "what")
    for row in compared["causes"]:
        table.add_row(f"{row['change']:+,}", f"{row['before']:,}", f"{row['now']:,}", _safe(row["cause"]))
    for row in compared["incidents"]:
        what = f"incident {_safe(row['incident_id'])}"
        table.add_row(row["change"], f"{row['before']:,}", f"{row['now']:,}", what)
    for row in compared["fingerprints"]:
        failure = f"{_safe(row['exception_class'])} {_safe(row['exception_message'])}"
        what = f"{failure} ({_safe(row['example'])[:12]})"
        table.add_row(row["change"], f"{row['before']:,}", f"{row['now']:,}", what)
    table.add_row(
        "",
        f"{compared['before']:,}",
        f"{compared['now']:,}",
        f"all; {compared['reclassified']:,} letters have another cause",
    )
    return table


_SECTIONS: Sequence[tuple[str, Callable[[Document, int], RenderableType | None]]] = (
    ("Incidents", _incidents),
    ("Causes", _causes),
    ("When", _timeline),
    ("Causes by source", _matrix),
    ("Most frequent failures", _fingerprints),
    ("Advice", _advice),
    ("Owners of consumers say", _rows("owners", "says")),
    ("Duplicates", _rows("duplicates", "kind", ">groups", ">letters")),
    ("Transactions", _rows("transactions", "state", ">transactions", ">copies", ">checks")),
    ("Replays", _replays),
    ("Still at the broker, until it deletes them", _retention),
    ("Against the earlier analysis", _compare),
)


def _next(console: Console, steps: Iterable[Mapping[str, str]]) -> None:
    """Print commands for the terminal to wrap, so that what is copied stays whole."""
    console.print(Text("\nNext", style="bold cyan"))
    for step in steps:
        console.print(Text(f"  {_safe(step['command'])}", style="bold"), soft_wrap=True)
        console.print(Text(f"    {_safe(step['why'])}", style="dim"), soft_wrap=True)


def _table(*columns: str) -> Table:
    """Return a table. A leading > aligns a column right; the last column wraps, the others do not."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        last = place == len(columns) - 1
        right = name.startswith(">")
        table.add_column(
            name.lstrip(">"), justify="right" if right else "left", no_wrap=not last, overflow="fold"
        )
    return table
