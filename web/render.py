"""Pages as text: templates that escape all they are given, and what nobody sees in it besides."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from dlq.core import clock
from dlq.core.text import block_for_terminal, for_terminal, shorten
from dlq.core.values.units import human_bytes, human_seconds
from dlq.reports import headline

_SUFFIX = ".html.jinja"
_STATIC: Mapping[str, tuple[str, str, str]] = {
    "style.css": ("dlq.reports", "report.css", "text/css; charset=utf-8"),
    "console.css": ("dlq.web", "static/console.css", "text/css; charset=utf-8"),
    "console.js": ("dlq.web", "static/console.js", "text/javascript; charset=utf-8"),
    "htmx.js": ("dlq.web", "static/htmx.min.js", "text/javascript; charset=utf-8"),
}
"""Name in an address -> the package and the file that it is, and its type."""


def read_static(name: str) -> tuple[bytes, str] | None:
    """Return the bytes and the type of a file that pages load; None where there is no such."""
    return _load(name) if name in _STATIC else None


@cache
def _load(name: str) -> tuple[bytes, str]:
    """Load a name of ours alone: one that a stranger thinks of would stay here."""
    package, path, kind = _STATIC[name]
    return files(package).joinpath(path).read_bytes(), kind


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show,
    )
    environment.filters |= _FILTERS
    environment.globals |= {"address": make_address, "failure": headline.failure}
    return environment


def _read_template(name: str) -> str:
    return files("dlq.web").joinpath(f"templates/{name}{_SUFFIX}").read_text(encoding="utf-8")


def _show(value: Any) -> Any:
    """Return every text that a template puts out: control characters and what nobody sees are escapes."""
    if value is None:
        return ""
    return for_terminal(value) if type(value) is str else value


def _lines(value: Any) -> Markup:
    """Return a longer text of strangers, which keeps its lines."""
    return escape(block_for_terminal(str(value if value is not None else "")))


def _exact(value: Any) -> Markup:
    """Return a text that comes back from a form, character for character. The first line break of a text area
    is no part of it."""
    return Markup("\n") + escape(str(value if value is not None else ""))


def _moment(value: str | None) -> str:
    return (value or "")[:19].replace("T", " ")


def _age(value: str | None) -> str:
    """Return how long ago, in words; nothing where it is not known."""
    at = clock.from_iso(value or "")
    return "" if at is None else human_seconds(max(0, clock.now() - at) / 1_000_000)


def _number(value: int | None) -> str:
    return f"{value or 0:,}"


def _json(value: Any) -> Markup:
    return _lines(json.dumps(value, indent=2, ensure_ascii=False, default=str))


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "lines": _lines,
    "exact": _exact,
    "exact_value": escape,
    "moment": _moment,
    "minutes": headline.minutes,
    "age": _age,
    "number": _number,
    "bytes": human_bytes,
    "seconds": human_seconds,
    "shorten": shorten,
    "as_json": _json,
}


def make_address(path: str, **query: Any) -> str:
    """Return an address of ours; empty parts of the query are left out."""
    pairs = [(name, text) for name, value in query.items() for text in _texts(value)]
    return f"{path}?{urlencode(pairs)}" if pairs else path


def _texts(value: Any) -> list[str]:
    several = value if isinstance(value, list | tuple) else [value]
    return [str(one) for one in several if one not in (None, "")]


def prepare(*templates: str) -> None:
    """Read these templates: who asks for such a page first does not wait for it."""
    for name in templates:
        _templates().get_template(name)


def render(template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(_templates().get_template(template).render(values), status)


def render_block(template: str, block: str, values: Mapping[str, Any]) -> str:
    """Return a part of a page: what a live page puts in the place of the same part."""
    made = _templates().get_template(template)
    return "".join(made.blocks[block](made.new_context(dict(values))))
