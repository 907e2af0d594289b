"""Text of strangers made safe to show: nothing in a message may steer a terminal or break a page."""

import json
import re
from collections.abc import Sequence

from dlq.core.invisible import INVISIBLE, is_needed

# C0 and C1 controls, DEL, line separators, bidirectional overrides, invisible marks, lone surrogates.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200b\u200e\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_ANY = re.compile(f"[{_UNSAFE}{INVISIBLE}]")
_NO_LAYOUT = re.compile(f"(?![\n\t])[{_UNSAFE}{INVISIBLE}]")
_MOST_NAMES = 3
_MOST_TOLD = 200
"""Characters of a value that an error repeats."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _NAMED:
        return _NAMED[match[0]]
    if is_needed(match.string, match.start()):
        return match[0]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def for_terminal(text: str) -> str:
    """Return one line without control characters, or what nobody sees: both are written as escapes, e.g.
    `\\x1b`, `\\n`. What a script or an emoji needs stays."""
    return _ANY.sub(_escape, text)


def cell_for_terminal(text: str) -> str:
    """Return a cell of CSV without control characters; it keeps its line breaks and tabs."""
    return _NO_LAYOUT.sub(_escape, text)


def json_for_terminal(text: str) -> str:
    """Return the same JSON, with what could steer a terminal in JSON's own escapes: it parses to the same
    values.

    Such characters stand in strings alone, and those below U+0020 are escaped there already; a line break
    between two values stays.
    """
    return text if text.isascii() and "\x7f" not in text else _NO_LAYOUT.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    if is_needed(match.string, match.start()):
        return match[0]
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def lines_for_terminal(text: str) -> list[str]:
    """Return the lines of a longer text, each safe for a terminal; tabs become spaces."""
    return [for_terminal(line.expandtabs(4)) for line in re.split(r"\r\n|\r|\n", text)]


def block_for_terminal(text: str) -> str:
    """`lines_for_terminal` as one text."""
    return "\n".join(lines_for_terminal(text))


def encodable(text: str) -> str:
    """Return the text with each lone surrogate, which no UTF-8 can hold, escaped: `\\ud800`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def sql_literal(text: str) -> str:
    """Return the text as SQL writes it: 'o''clock'."""
    return "'{}'".format(text.replace("'", "''"))


def list_names(names: Sequence[str]) -> str:
    """`orders`, `orders and stock`, `orders, stock, mails and 4 more`."""
    rest = len(names) - _MOST_NAMES
    *first, last = [*names[:_MOST_NAMES], *([f"{rest} more"] if rest > 0 else [])] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def shorten(text: str, width: int) -> str:
    """Shorten a text to at most `width` characters, with an ellipsis where it is cut."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def quote_value(value: object) -> str:
    """Return a value of a configuration for the line that refuses it, cut where it is long."""
    try:
        return shorten(repr(value), _MOST_TOLD)
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return f"{type(value).__name__} of a size that cannot be shown"
