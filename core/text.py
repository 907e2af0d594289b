"""Hostile text made harmless: control characters escaped before they reach a terminal."""

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def for_terminal(text: str) -> str:
    """`text` on one line, control and direction-changing characters as \\xNN or \\uNNNN."""
    return _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode(), text)
