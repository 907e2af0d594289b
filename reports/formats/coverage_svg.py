"""Where the dead lead, as a picture: places on the left, where their messages end on the right."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dlq.core.text import for_terminal

_LINE, _LEFT, _RIGHT, _WIDTH = 18, 330, 760, 1090
_LONGEST = 44
_COLOURS = {"kept": "#2a7a3b", "lost": "#b3261e", "unknown": "#7a6a00"}
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" '
    'font-family="sans-serif" font-size="12"><title>{2}</title>'
    '<rect width="100%" height="100%" fill="#fff"/>'
)


def draw(rows: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> str:
    """Return an SVG of the rows of `dlq coverage`. It holds no script and no link; what strangers named is
    text."""
    ends = {(row["broker"], end): None for row in rows for end in _ends(row)}
    places = {(row["broker"], row["what"]): None for row in rows}
    left = {place: at for at, place in enumerate(places, 1)}
    right = {end: at * max(1, len(left) // max(1, len(ends))) for at, end in enumerate(ends, 1)}
    several = len({row["broker"] for row in rows}) > 1
    height = _LINE * (max([*left.values(), *right.values()], default=0) + 2)
    title = ", ".join(f"{counts[name]} {name}" for name in _COLOURS)
    lines = [
        _line(left[row["broker"], row["what"]], right[row["broker"], end], row)
        for row in rows
        for end in _ends(row)
    ]
    names = [_text(_LEFT - 6, at, "end", *place, several) for place, at in left.items()]
    names += [_text(_RIGHT + 6, at, "start", *end, several) for end, at in right.items()]
    return "\n".join([_HEAD.format(_WIDTH, height, title), *lines, *names, "</svg>"]) + "\n"


def _ends(row: Mapping[str, Any]) -> list[str]:
    verdict = str(row["verdict"])
    return list(row["leads_to"]) if verdict == "kept" else [verdict.upper()]


def _line(left: int, right: int, row: Mapping[str, Any]) -> str:
    said = f"{row['what']}, {row['death']}: {row['verdict']}" + (f", {row['why']}" if row["why"] else "")
    start, end = left * _LINE, right * _LINE
    bent = f"M{_LEFT} {start}C{_LEFT + 200} {start} {_RIGHT - 200} {end} {_RIGHT} {end}"
    colour = _COLOURS[row["verdict"]]
    return f'<path d="{bent}" fill="none" stroke="{colour}"><title>{_safe(said)}</title></path>'


def _text(x: int, at: int, anchor: str, broker: str, name: str, several: bool) -> str:
    said = f"{broker}: {name}" if several else name
    shown = said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
    colour = _COLOURS.get(name.lower(), "#111") if name.isupper() else "#111"
    return f'<text x="{x}" y="{at * _LINE + 4}" text-anchor="{anchor}" fill="{colour}">{_safe(shown)}</text>'


def _safe(text: str) -> str:
    """Escape what XML cannot hold, and what nobody sees; nothing in a name ends its text."""
    return escape(for_terminal(text))
