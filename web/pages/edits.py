"""A letter as a form shows it to be edited, and what comes back from it as an edit of a plan."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from dlq.core.errors import UsageError
from dlq.replay.plans.edits import Edits, parse
from dlq.web.forms import Form

_LARGEST = 2**20
"""Bytes of a body that a form shows."""


def read_text(letter: Mapping[str, Any]) -> str | None:
    """Return the body as a text that a form brings back unchanged; None where it is none."""
    body = base64.b64decode(letter["body_base64"] or "")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return None
    is_odd = any(ord(one) < 32 and one not in "\t\n\r" for one in text) or "\ufeff" in text
    breaks = text.replace("\r\n", "\n")
    mixed = "\r" in breaks or (breaks != text and text.count("\n") != text.count("\r\n"))
    return None if len(body) > _LARGEST or is_odd or mixed else text


def read_edit(letter: Mapping[str, Any], form: Form) -> Edits:
    """Return what the form changes of the letter. Raises UsageError where it changes nothing."""
    line: dict[str, Any] = {
        "broker_kind": letter["broker_kind"],
        "record": {"record_id": letter["record_id"]},
        **_read_headers(letter, form),
        **_read_body(letter, form),
    }
    if line.keys() == {"broker_kind", "record"}:
        raise UsageError("nothing is changed: to send the letter as it is, plan a replay of it")
    return parse([json.dumps(line).encode()], "the form")


def _read_headers(letter: Mapping[str, Any], form: Form) -> Mapping[str, Any]:
    known = dict(letter["headers"] or {})
    names, values = form.several("header_name"), form.several("header_value")
    if not len(values) == len(names) == len({*names} & known.keys()):
        raise UsageError("these are not the headers of this letter: open the form again")
    wanted = {name: _as_before(known[name], value) for name, value in zip(names, values, strict=True)}
    return {} if {**known, **wanted} == known else {"headers": {**known, **wanted}}


def _read_body(letter: Mapping[str, Any], form: Form) -> Mapping[str, Any]:
    before = read_text(letter)
    if before is None or "body" not in form.names():
        return {}
    wanted = _as_before(before, form.exact("body"))
    return {} if wanted == before else {"body_text": wanted}


def _as_before(before: str, value: str) -> str:
    """Return line breaks as they were: a form brings each as two characters."""
    text = value.replace("\r\n", "\n")
    return text.replace("\n", "\r\n") if "\r\n" in before else text
