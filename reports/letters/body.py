"""A body made readable: JSON indented, text as it is, anything else as a hex dump."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from dlq.core.values.units import human_bytes
from dlq.reports.letters.pickled import texts_in
from dlq.reports.letters.unpacking import packing, pieces

_SHOWN = {"text": 16 * 1024, "hex": 512}
"""What is shown of a body unless more is asked for: characters, bytes."""
_FULL = {"text": 4 * 2**20, "hex": 256 * 1024}
"""What is shown at most: a terminal's text takes a hundred times its size in memory."""
LARGEST = _FULL["text"]
"""Bytes that are looked at, of a body that may unpack to more than any memory holds."""
_COUNTED = 10**9
"""Bytes up to which the rest is unpacked to say how much it is."""
_HEX_WIDTH = 16


class Preview(NamedTuple):
    """`kind` is empty, json, text or hex; `text` is as hostile as the body; `note` says what was done."""

    kind: str
    text: str
    note: str = ""


def preview(
    body: bytes, encoding: str | None = None, no_text: str | None = None, full: bool = False
) -> Preview:
    """Return the body for people. `encoding` is its content encoding; `no_text` says why it is none, if
    so."""
    if not body:
        return Preview("empty", "")
    plain, whole, note = (body, len(body), no_text) if no_text else _unpack(body, encoding)
    limits = _FULL if full else _SHOWN
    text = None if no_text else _as_text(plain, whole)
    if text is None and not no_text and (texts := texts_in(plain)) is not None:
        note = "; ".join(filter(None, (note, "a pickle, which is never unpickled: the texts in it")))
        joined, limit = "\n".join(texts), limits["text"]
        return Preview("text", joined[:limit], _note_cut(note, limit, len(joined), full))
    if text is None:
        limit = limits["hex"]
        return Preview("hex", _hex(plain[:limit]), _note_cut(note, limit, whole, full))
    limit = limits["text"]
    pretty = _as_json(text, limit) if whole <= len(plain) else None
    if pretty is None:
        return Preview("text", text[:limit], _note_cut(note, limit, whole, full))
    cut = _more(f"indented, the first {human_bytes(limit)}", full) if len(pretty) > limit else ""
    return Preview("json", pretty[:limit], "; ".join(filter(None, (note, cut))))


def preview_document(document: Any, note: str, full: bool = False) -> Preview:
    """Return what is in a body of the broker's own form; `note` says which."""
    shown = preview(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"), full=full)
    return shown._replace(note="; ".join(filter(None, (note, shown.note))))


def _note_cut(note: str, limit: int, whole: int, full: bool) -> str:
    """Return what was done, and how much is not shown."""
    cut = _more(f"the first {human_bytes(limit)} of {_size(whole)}", full) if whole > limit else ""
    return "; ".join(filter(None, (note, cut)))


def _more(cut: str, full: bool) -> str:
    return f"{cut}; {'' if full else '--full shows more, '}--body FILE writes all"


def _size(whole: int) -> str:
    return f"more than {human_bytes(_COUNTED)}" if whole > _COUNTED else human_bytes(whole)


def _unpack(body: bytes, encoding: str | None) -> tuple[bytes, int, str]:
    """Return the body's beginning, unpacked where it is packed; how long it is in all; what was done."""
    kind = packing(body, encoding)
    if kind is None:
        return body[:LARGEST], len(body), ""
    start, whole = bytearray(), 0
    for piece in pieces(body, encoding):
        start += piece[: LARGEST - len(start)]
        whole += len(piece)
        if whole > _COUNTED:
            break
    if start == body[:LARGEST]:
        return bytes(start), whole, f"said to be {kind}, but it does not unpack"
    return bytes(start), whole, f"{kind}: {human_bytes(len(body))} unpacked to {_size(whole)}"


def _as_text(body: bytes, whole: int) -> str | None:
    """Return the text; of a body that was cut, the last character may be half."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if whole == len(body) or error.start < len(body) - 3:
            return None
        text = body[: error.start].decode("utf-8-sig")
    return None if any(ord(c) < 32 and c not in "\t\n\r\x1b" for c in text) else text


def _as_json(text: str, limit: int) -> str | None:
    """Return it indented, to a little more than `limit` characters: what nests deep grows a thousandfold."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        parts = json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text))
        return _join_first(parts, limit)
    except (ValueError, RecursionError):
        return None


def _join_first(parts: Iterable[str], limit: int) -> str:
    taken: list[str] = []
    length = 0
    for part in parts:
        taken.append(part)
        length += len(part)
        if length > limit:
            break
    return "".join(taken)


def _hex(data: bytes) -> str:
    def line(start: int) -> str:
        row = data[start : start + _HEX_WIDTH]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        return f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {shown}"

    return "\n".join(line(start) for start in range(0, len(data), _HEX_WIDTH))
