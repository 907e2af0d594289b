"""A body made readable: JSON indented, text as it is, anything else as a hex dump."""

import json
import zlib
from typing import NamedTuple

from dlq.core.record import FLAG_AMQP10_BODY
from dlq.core.units import human_bytes

_SHOWN = {"text": 16 * 1024, "hex": 512}
"""What is shown of a body unless all is asked for: characters, bytes."""
_INFLATED = 4 * 2**20
_HEX_WIDTH = 16


class Preview(NamedTuple):
    """`kind` is empty, json, text or hex; `text` is as hostile as the body; `note` says what was done."""

    kind: str
    text: str
    note: str = ""


def opaque(broker_kind: str, flags: int | None) -> str | None:
    """Why a body is no text, whatever its bytes look like; None: nothing says so."""
    encoded = broker_kind == "rabbitmq" and (flags or 0) & FLAG_AMQP10_BODY
    return "an encoded AMQP 1.0 section" if encoded else None


def preview(
    body: bytes, encoding: str | None = None, no_text: str | None = None, full: bool = False
) -> Preview:
    """The body for eyes. `encoding` is its content encoding; `no_text` says why it is none, if so."""
    if not body:
        return Preview("empty", "")
    plain, note = (body, no_text) if no_text else _unpacked(body, encoding, full)
    text = None if no_text else _as_text(plain)
    if text is None:
        limit = len(plain) if full else _SHOWN["hex"]
        return Preview("hex", _hex(plain[:limit]), _told(note, limit, len(plain)))
    pretty = _as_json(text)
    shown = text if pretty is None else pretty
    limit = len(shown) if full else _SHOWN["text"]
    return Preview("text" if pretty is None else "json", shown[:limit], _told(note, limit, len(shown)))


def _told(note: str, limit: int, whole: int) -> str:
    cut = f"the first {human_bytes(limit)} of {human_bytes(whole)}; --full shows all" if whole > limit else ""
    return "; ".join(part for part in (note, cut) if part)


def _unpacked(body: bytes, encoding: str | None, full: bool) -> tuple[bytes, str]:
    """Decompressed where the encoding or the first bytes say so, never more than a bound."""
    name = (encoding or "").strip().lower()
    if not (name in ("gzip", "x-gzip", "deflate", "zlib") or body[:3] == b"\x1f\x8b\x08"):
        return body, ""
    stream = zlib.decompressobj(wbits=47)  # zlib or gzip, by its header
    try:
        plain = stream.decompress(body, 0 if full else _INFLATED)
    except zlib.error:
        return body, f"said to be {name}, but it does not unpack"
    more = "" if stream.eof else " and more"
    return plain, f"{name or 'gzip'}: {human_bytes(len(body))} unpacked to {human_bytes(len(plain))}{more}"


def _as_text(body: bytes) -> str | None:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if any(ord(c) < 32 and c not in "\t\n\r\x1b" for c in text) else text


def _as_json(text: str) -> str | None:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _hex(data: bytes) -> str:
    def line(start: int) -> str:
        row = data[start : start + _HEX_WIDTH]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        return f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {shown}"

    return "\n".join(line(start) for start in range(0, len(data), _HEX_WIDTH))
