"""Text of strangers made safe to show: nothing in a message may steer a terminal or break a page."""

import json
import re
from collections.abc import Sequence

# C0 and C1 controls, DEL, line separators, bidirectional overrides, invisible marks, lone surrogates.
_UNSAFE = (
    r"\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200b\u200e\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_INVISIBLE = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u3164\uffa0"
    r"\ufe00-\ufe0f\U000e0080-\U000e0fff\ufff0-\ufff8\u2800"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
)
"""Characters that nobody sees, as the inside of a regular expression's class: `orders` and `or\\u200dders`
look alike."""

# Scripts whose letters change as they join: Arabic and its kin, those of India, Myanmar, Khmer, Mongolian.
_JOINING = r"\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\ua840-\ua877"
_IDEOGRAPHS = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PICTURES = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf"
    r"\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_NEEDED = re.compile(
    rf"(?<=[{_JOINING}])\u200c(?=[{_JOINING}])"
    rf"|(?<=[{_JOINING}])\u200d"
    rf"|(?<=[{_PICTURES}\ufe0f])\u200d(?=[{_PICTURES}])"
    rf"|(?<=[{_PICTURES}])[\ufe0e\ufe0f]"
    rf"|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    r"|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff])"
    r"|(?<=[\U00013000-\U0001342f])[\U00013430-\U0001343f]"
    rf"|(?<=[{_IDEOGRAPHS}])[\ufe00-\ufe0d\U000e0100-\U000e01ef]"
    r"|(?<=[\u1820-\u18af])[\u180b-\u180f]"
    r"|\u115f(?=[\u1160-\u11a7])"
    r"|(?<=[\u1100-\u115f])\u1160"
)
"""Where a script or an emoji cannot do without one."""
_ANY = re.compile(f"[{_UNSAFE}{_INVISIBLE}]")
_NO_LAYOUT = re.compile(f"(?![\n\t])[{_UNSAFE}{_INVISIBLE}]")
_MOST_NAMES = 3
_MOST_TOLD = 200
"""Characters of a value that an error repeats."""
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _NAMED:
        return _NAMED[match[0]]
    if _NEEDED.match(match.string, match.start()):
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
    if _NEEDED.match(match.string, match.start()):
        return match[0]
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def lines_for_terminal(text: str) -> list[str]:
    """Return the lines of a longer text, each safe for a terminal; tabs become spaces."""
    return [for_terminal(line.expandtabs(4)) for line in re.split(r"\r\n|\r|\n", text)]


def block_for_terminal(text: str) -> str:
    """Return `lines_for_terminal` as one text."""
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
