"""Masked views: structure is shown, and content only where `[mask] show` lists it.

Shown are names, types and lengths of headers and of JSON members, what brokers and frameworks wrote, and what
`dlq` itself says. A failure's text is shown as its template. All else is its type and its length.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from dlq.core.brokers import plugin_of
from dlq.core.headers.failure_headers import is_of_a_failure
from dlq.core.settings import Mask
from dlq.core.values.json_paths import EVERY, parse_path

_LEFT_OUT = ("raw_properties_base64", "raw_properties")
_OF_PRODUCERS = ("message_id", "correlation_id", "keys", "key", "unique_key")
"""Columns with what a producer wrote."""
_TEXTS = (
    "failure_text", "exception_message", "evidence", "advice_reason", "error", "errors", "output", "failure",
    "saw", "detail", "text", "value",
)  # fmt: skip
"""Members in which a program may quote content."""
_NOTES = ("note", "reason")
"""Members with what people say."""
_LARGEST_JSON = 2**20
"""Bytes of a body whose shape is looked for."""
_MOST_MEMBERS, _MOST_ITEMS, _MOST_LINES = 200, 3, 200
_DEEPEST = 32
_LONGEST_LINE = 300
_LONGEST_WORD = 256
_FRAME = re.compile(r"\s*at [\w.$<>/]+\([\w.$]+(?::\d+)?\)|\s*(?:\.\.\. \d+ more|Traceback .*:)")
_OPEN_QUOTE = re.compile(r"""["«»„“`\[]|(?<!\w)'""")
"""What is left of a quoted value behind a template, where its end is not seen."""
_WORD = re.compile(
    r"""(?!.*\d{6}) [^\s@"']+ | \d{1,9} | 1\d{9}(?:\d{3})? | \d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-][\d:]+)?""",
    re.VERBOSE,
)
"""A name, a number, or a time (also in seconds or milliseconds since the epoch)."""
_QUOTED = re.compile(r"""(?:(?<!\w)'|")(?:.*['"](?!\w)|.*)""")
"""All that is quoted in a line: a value may hold quotes, or miss its end."""
_ADDRESS = re.compile(r"@[\w-]+\.")
_OF_PERSONS = re.compile(r"@|\d{6}")
"""In names: addresses, and numbers of something."""

NOTHING = Mask()


class Masker:
    """Masks documents by what `[mask]` lets be shown."""

    def __init__(self, mask: Mask = NOTHING) -> None:
        wanted = [entry.partition(":") for entry in mask.show]
        self._headers = [name.lower() for kind, _, name in wanted if kind in ("header", "property")]
        self._paths = [parse_path(name) for kind, _, name in wanted if kind == "json"]
        self._columns = {kind for kind, colon, _ in wanted if not colon}

    def document(self, document: Mapping[str, Any], message_id: object = None) -> dict[str, Any]:
        """Return a letter, or another JSON-able object, masked; it keeps its members, but for blocks of
        bytes. `message_id`: of the letter of which it is a part."""
        kind, known = document.get("broker_kind"), document.get("message_id", message_id)
        meant = _list_meant(document, known)
        return _rename_members(
            (name, self._member(meant.get(name, name), value, kind, known))
            for name, value in document.items()
            if name not in _LEFT_OUT
        )

    def _member(self, name: str, value: Any, kind: str | None, message_id: object = None) -> Any:
        if name in ("headers", "properties") and isinstance(value, Mapping):
            return _rename_members((one, self._header(one, item, kind)) for one, item in value.items())
        if name == "body_base64" and value:
            return base64.b64encode(self.body(base64.b64decode(value)).encode()).decode()
        if name == "body_text" and isinstance(value, str):
            return self.body(value.encode())
        if name in self._columns:
            return value
        if name in _OF_PRODUCERS:
            return [shape(one) for one in value] if isinstance(value, list) else shape(value)
        if isinstance(value, str) and name in _TEXTS:
            return self._of_programs(value)
        if isinstance(value, str):
            is_quoting = name in _NOTES and _OF_PERSONS.search(value)
            return self.text(value) if is_quoting else self.sentence(value)
        if isinstance(value, Mapping):
            return self.document(value, message_id)
        is_list = isinstance(value, list | tuple)
        return [self._member(name, one, kind, message_id) for one in value] if is_list else value

    def _header(self, name: str, value: Any, kind: str | None) -> Any:
        if any(fnmatchcase(name.lower(), pattern) for pattern in self._headers):
            return value
        is_nested = isinstance(value, dict | list)
        if kind and plugin_of(kind).writes.fullmatch(name):
            return self._member("", value, kind) if is_nested else self._of_programs(value)
        if is_of_a_failure(name) and not is_nested:
            return self._of_programs(value)
        inner = _json(value) if isinstance(value, str) else value
        return self._shape(inner) if isinstance(inner, dict | list) else shape(value)

    def _of_programs(self, value: Any) -> Any:
        """Return what a broker or a framework wrote: numbers, times, and words stay; a text is its
        template."""
        is_plain = not isinstance(value, str) or (len(value) <= _LONGEST_WORD and _WORD.fullmatch(value))
        return value if is_plain else self.text(value)

    def body(self, body: bytes) -> str:
        """Return what is shown of a body: its shape where it is JSON, else its length."""
        value = _json(body) if len(body) <= _LARGEST_JSON else None
        if isinstance(value, dict | list):
            return json.dumps(self._shape(value), ensure_ascii=False)
        return f"[masked: {len(body):,} bytes]"

    def sentence(self, text: str) -> str:
        """Return what `dlq` itself says, as it is, unless it quotes an address."""
        return self.text(text) if _ADDRESS.search(text) else text

    def errors(self, text: str) -> str:
        """Return what a command wrote on standard error, without what it quotes: a broker that refuses a
        letter may repeat what that holds."""
        return "\n".join(map(self.sentence, _QUOTED.sub("'…'", text).split("\n")))

    def text(self, text: str) -> str:
        """Return a text without numbers, quoted values, addresses and ids, line by line; frames of a stack
        stay."""
        lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
        return "\n".join(line if _FRAME.fullmatch(line) else _template(line) for line in lines)

    def _shape(self, value: Any, at: Sequence[str | int] = ()) -> Any:
        """Return a JSON value with types and lengths in the place of values, but for the paths that are
        shown."""
        if any(_leads(path, at) for path in self._paths):
            return value
        if len(at) == _DEEPEST:
            return "deeper"
        if isinstance(value, dict):
            some = islice(value.items(), _MOST_MEMBERS)
            shown = _rename_members((name, self._shape(one, (*at, name))) for name, one in some)
            return _with_rest(shown, len(value) - _MOST_MEMBERS)
        if isinstance(value, list):
            rest = [f"{len(value) - _MOST_ITEMS:,} more"] if len(value) > _MOST_ITEMS else []
            return [self._shape(one, (*at, place)) for place, one in enumerate(value[:_MOST_ITEMS])] + rest
        return shape(value)


def _list_meant(document: Mapping[str, Any], message_id: object) -> Mapping[str, str]:
    """Return members by the names of what they hold: a released key in the audit, a message id that is the
    physical one, too."""
    if document.get("action") == "release":
        return {"value": "key"}
    return {"physical_id": "message_id"} if document.get("physical_id") == message_id else {}


def shape(value: Any) -> Any:
    """Return the type and the length of a value that is not shown."""
    if value is None or value == "":
        return value
    if isinstance(value, bool):
        return "true or false"
    return "number" if isinstance(value, int | float) else f"text of {len(str(value)):,}"


def _with_rest(shown: dict[str, Any], rest: int) -> dict[str, Any]:
    return {**shown, "…": f"{rest:,} more"} if rest > 0 else shown


def _name(name: str) -> str:
    """Return a name as it is shown: structure, unless it is made of content."""
    is_content = len(name) > _LONGEST_WORD or _OF_PERSONS.search(name)
    return f"[name of {len(name):,}]" if is_content else name


def _rename_members(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return members by the names that are shown of them, of which several may have become equal."""
    found: dict[str, Any] = {}
    for name, value in members:
        shown, number = _name(name), 1
        while shown in found:
            number += 1
            shown = f"{_name(name)} ({number})"
        found[shown] = value
    return found


def _template(line: str) -> str:
    from dlq.analyzers.rules.exceptions import template  # all rules come with it

    shown = template(line[:_LONGEST_LINE]) or ""
    start, *rest = _OPEN_QUOTE.split(shown, maxsplit=1)
    return f"{start}…" if rest or len(line) > _LONGEST_LINE else shown


def _leads(path: Sequence[str | int], at: Sequence[str | int]) -> bool:
    """Return whether a path names the member there."""
    return len(path) == len(at) and all(step in (EVERY, one) for step, one in zip(path, at, strict=True))


def _json(text: str | bytes) -> Any:
    """Return the value; None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
