"""The report as Markdown, for a ticket or a chat: GitHub's flavour, everything of strangers escaped."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dlq.core.causes import mark_doubt
from dlq.core.documents import Document
from dlq.core.text import for_terminal
from dlq.core.values.units import human_bytes
from dlq.reports import incidents
from dlq.reports.failures import stands
from dlq.reports.formats import sparkline
from dlq.reports.headline import basis, failure, minutes, sentences
from dlq.reports.letters import stack

_WIDTH = 72
_TRACES = 3
# What sites make a link, a mention or a reference of after they have read the Markdown, so that no backslash
# helps: @user, #12, !12, GH-12, www.site, https://site.
_LIVE = re.compile(r"[@#!%$~&](?=\w)|:(?=//)|(?<=www)\.|(?<=\bGH)-(?=\d)", re.IGNORECASE)
_JOINED = "\u2060"
"""It breaks them, and nobody sees it."""
# Markup, and the pipe that ends a cell. An underscore inside a word means nothing.
_SPECIAL = re.compile(r"[\\`*{}\[\]|~$@#]|:(?=//)|(?<=www)\.|(?<![^\W_])_|_(?![^\W_])")
_HTML = {"&": "&amp;", "<": "&lt;"}


def escape(value: Any) -> str:
    """Return text that Markdown shows as it is: no markup, no HTML, no link, no mention, on one line."""
    text = _LIVE.sub(rf"\g<0>{_JOINED}", for_terminal("" if value is None else str(value)))
    for character, entity in _HTML.items():
        text = text.replace(character, entity)
    return _SPECIAL.sub(r"\\\g<0>", text)


def render(document: Document) -> str:
    """Return the whole report."""
    parts = ["# Dead letters", *(escape(sentence) for sentence in sentences(document))]
    for title, draw in _SECTIONS:
        content = draw(document)
        if content:
            parts += [f"## {title}", content]
    parts += ["## Next", "\n".join(_step(step) for step in document["next"])]
    based = basis(document)
    parts.append(escape(based[0].upper() + based[1:]))
    return "\n\n".join(parts) + "\n"


def _step(step: Mapping[str, str]) -> str:
    """Fence its command by more backticks than stand in it in a run, so that the command cannot end it."""
    command = for_terminal(step["command"])
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", command)), default=0))
    return f"- {escape(step['why'])}:\n  {fence}{command}{fence}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table. A leading > aligns a column to the right."""
    lines = ["| " + " | ".join(name.lstrip(">") for name in columns) + " |"]
    lines.append("|" + "|".join(" ---: " if name.startswith(">") else " --- " for name in columns) + "|")
    body = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines + body) if body else ""


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(value)


def _causes(document: Document) -> str:
    rows = (
        (r["letters"], f"{r['share']:.1%}", r["name"], r["meaning"], minutes(r["first"]), minutes(r["last"]))
        for r in document["causes"]
    )
    return _table((">letters", ">share", "cause", "means", "since", "until"), rows)


def _incidents(document: Document) -> str:
    rows: list[Sequence[Any]] = []
    for r in document["incidents"]:
        told = incidents.describe(r), incidents.places_of(r), " ".join(incidents.marks(r))
        rows.append((r["incident_id"], incidents.end_of(r), r["size"], *told))
    return _table(("incident", "until", ">letters", "what", "where", ""), rows)


def _timeline(document: Document) -> str:
    drawn = sparkline.draw(document["timeline"], _WIDTH)
    return f"```text\n{drawn.bars}\n{drawn.axis}\n```\n\n{drawn.note} (UTC)" if drawn else ""


def _matrix(document: Document) -> str:
    sources = [row["source"] for row in document["sources"]]
    counts = {(row["cause"], row["source"]): row["letters"] for row in document["matrix"]}
    rows = [
        [row["name"], *(counts.get((row["cause"], source), 0) for source in sources)]
        for row in document["causes"]
    ]
    rows.append(["size", *(human_bytes(row["body_bytes"] or 0) for row in document["sources"])])
    return _table(("cause", *(f">{escape(source)}" for source in sources)), rows)


def _fingerprints(document: Document) -> str:
    rows: list[Sequence[Any]] = []
    for r in document["fingerprints"]:
        told = mark_doubt(r["cause"], r["proof"]), minutes(r["first"]), r["example"][:12]
        rows.append((r["letters"], stands(r), *failure(r), *told))
    table = _table((">letters", "state", "failure", "message", "cause", "since", "example"), rows)
    return table + "".join(map(_trace, document.get("sample", {}).get("failures", ())[:_TRACES]))


def _trace(failure: Document) -> str:
    """Return a stack trace, its root cause first."""
    lines = [f"{stack.MARKS[kind]}{for_terminal(text)}" for kind, text in failure["trace"]]
    return f"\n\n{escape(failure['record_id'][:12])}:\n\n{fence(lines)}" if lines else ""


def fence(lines: Sequence[str]) -> str:
    """Fence the lines, of which none can end it."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *lines, fence])


def _retention(document: Document) -> str:
    rows = (
        (r["source"], r["letters"], minutes(r["first"]), minutes(r["last"]), r["because"])
        for r in document["retention"]
    )
    return _table(("source", ">letters", "deleted from (UTC)", "to", "by"), rows)


def _compare(document: Document) -> str:
    compared = document.get("compare")
    if compared is None:
        return ""
    rows: list[tuple[Any, ...]] = [
        (f"{r['change']:+,}", r["before"], r["now"], r["cause"], "") for r in compared["causes"]
    ]
    rows += [
        (r["change"], r["before"], r["now"], f"incident {r['incident_id']}", "")
        for r in compared["incidents"]
    ]
    for r in compared["fingerprints"]:
        failure = f"{r['exception_class'] or ''} {r['exception_message'] or ''}"
        rows.append((r["change"], r["before"], r["now"], failure, r["example"][:12]))
    return _table(("change", ">before", ">now", "what", "example"), rows)


def _rows(name: str, *columns: str) -> Callable[[Document], str]:
    """Return a section that shows a list of the document as it is."""
    return lambda document: _table(
        columns, ([row[column.lstrip(">")] for column in columns] for row in document[name])
    )


_SECTIONS: Sequence[tuple[str, Callable[[Document], str]]] = (
    ("Incidents", _incidents),
    ("Causes", _causes),
    ("When", _timeline),
    ("Causes by source", _matrix),
    ("Most frequent failures", _fingerprints),
    ("Advice", _rows("advice", "advice", ">letters", ">waiting", "meaning")),
    ("Owners of consumers say", _rows("owners", "says")),
    ("Duplicates", _rows("duplicates", "kind", ">groups", ">letters")),
    ("Transactions", _rows("transactions", "state", ">transactions", ">copies", ">checks")),
    ("Replays", _rows("replay_states", "replay_state", ">letters")),
    ("Still at the broker, until it deletes them", _retention),
    ("Against the earlier analysis", _compare),
)
