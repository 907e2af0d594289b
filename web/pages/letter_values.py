"""What a page shows of one letter, beside what the document says."""

import base64
from collections.abc import Mapping
from typing import Any

from dlq.operations.reading.letters import preview_body
from dlq.reports.letters import stack
from dlq.reports.letters.body import preview

_LINES = 200
_TEXT = 16 * 1024
_NAMES = {"json": "JSON", "text": "Text", "hex": "Bytes", "empty": "Empty"}


def add_trace(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the letter with the lines of its stack trace, each with its kind."""
    text = stack.trace_of(letter)
    lines = stack.read(text)[:_LINES] if text else []
    return {**letter, "trace": [(line.kind, line.text) for line in lines]}


def list_bodies(letter: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return how a body can be seen, the most readable first: name, kind, text."""
    body = base64.b64decode(letter["body_base64"] or "")
    shown = preview_body(letter)
    if letter.get("masked"):
        return [(_NAMES[shown.kind], shown.kind, shown.text)]
    found = [(_NAMES[shown.kind], shown.kind, shown.text)]
    if shown.kind == "json":
        found.append(("As text", "text", body[:_TEXT].decode("utf-8", "backslashreplace")))
    if body and shown.kind != "hex":
        found.append(("As bytes", "hex", preview(body, None, "as bytes").text))
    return found
