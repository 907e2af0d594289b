"""The report as one HTML file: no network, no server, opens from a ticket.

Everything that comes from strangers is text: the template escapes it, the script only ever sets text
content, and the content security policy in the file lets no other script, style, image or connection
happen.
"""

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dlq.core import clock
from dlq.core.causes import TRANSACTION_STATES
from dlq.core.documents import Document
from dlq.core.text import block_for_terminal, for_terminal
from dlq.core.values.units import human_bytes, human_seconds
from dlq.reports import incidents
from dlq.reports.headline import failure, minutes, sentences
from dlq.reports.letters import stack

_OF_STRANGERS = {"headers", "properties"}
_LONG_TEXTS = {"failure_text", "body", "evidence", "exception_message", *_OF_STRANGERS}
"""These, and what is in headers, keep their lines; every other text is one line."""
_COLORS = 8
"""Causes that get a colour of their own, the most frequent first; the rest share the last."""


def render(document: Document) -> str:
    """Return the whole file. `document` must hold `sample` (dlq.reports.formats.sample)."""
    safe = visible(document)
    styles, library, script = map(_own, ("report.css", "chart.umd.min.js", "report.js"))
    template = _environment().from_string(_asset("report.html.jinja"))
    return template.render(
        document=safe,
        answer=[for_terminal(sentence) for sentence in sentences(document)],
        colors={row["cause"]: min(place, _COLORS - 1) for place, row in enumerate(safe["causes"])},
        lanes=_lanes(safe),
        marks=stack.MARKS,
        samples={row["fingerprint"]: row for row in safe["sample"]["failures"]},
        matrix={(row["cause"], row["source"]): row["letters"] for row in safe["matrix"]},
        data=script_data(_for_script(safe)),
        styles=styles,
        scripts=[library, script],
        policy=_policy(styles, library, script),
    )


def _asset(name: str) -> str:
    return files("dlq.reports").joinpath(name).read_text(encoding="utf-8")


def _own(name: str) -> Markup:
    """Return a style sheet or script as it is."""
    return Markup(_asset(name))  # noqa: S704 (a file of this package: nothing of strangers is in it)


def _environment() -> Environment:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"failure": failure, "incidents": incidents, "states": TRANSACTION_STATES}
    environment.filters |= {"minutes": minutes, "bytes": human_bytes, "seconds": human_seconds}
    return environment


def _lanes(document: Document) -> list[tuple[float, float, float]]:
    """Start, length and peak of each incident, in percent of the time from the first letter to the last."""
    times = [clock.from_iso(document[name] or "") or 0 for name in ("first", "last")]
    first, span = times[0], max(times[1] - times[0], 1)

    def place(moment: str | None) -> float:
        return min(100.0, max(0.0, 100 * ((clock.from_iso(moment or "") or first) - first) / span))

    return [
        (place(row["start"]), place(row["end"]) - place(row["start"]), place(row["peak"]))
        for row in document["incidents"]
    ]


def _policy(styles: str, *scripts: str) -> str:
    """Return a policy by which only what is in this file may run, known by its hash; nothing may be loaded or
    sent."""
    allowed = " ".join(_hash(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def visible(value: Any, name: str = "") -> Any:
    """Escape control characters and bidirectional overrides, at any depth."""
    if isinstance(value, str):
        return block_for_terminal(value) if name in _LONG_TEXTS else for_terminal(value)
    if isinstance(value, Mapping):
        inside = name if name in _OF_STRANGERS else None
        return {for_terminal(str(key)): visible(item, inside or str(key)) for key, item in value.items()}
    return [visible(item, name) for item in value] if isinstance(value, list | tuple) else value


def _for_script(document: Document) -> dict[str, Any]:
    """Return what the script needs: the timeline, and the letters as columns and rows."""
    letters = document["sample"]["letters"]
    columns = list(letters[0]) if letters else []
    return {
        "causes": [row["cause"] for row in document["causes"]],
        "timeline": document["timeline"],
        "incidents": [
            {name: row[name] for name in ("incident_id", "start", "end")} for row in document["incidents"]
        ],
        "totals": {
            "incident_id": {row["incident_id"]: row["size"] for row in document["incidents"]},
            "fingerprint": {row["fingerprint"]: row["letters"] for row in document["fingerprints"]},
        },
        "columns": columns,
        "rows": [list(row.values()) for row in letters],
        "stories": {row["record_id"]: row for row in document["sample"]["stories"]},
    }


def script_data(value: Any) -> Markup:
    """Return JSON that cannot end its script element, whatever is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (every character that HTML could act on is escaped above)
