"""Queues by pattern: `*` any text, `?` one character, `[ab]` one of these; `[*]` is a star."""

import re
from fnmatch import fnmatchcase

_WILD = frozenset("*?")
_SPECIAL = re.compile(r"[*?\[]")


def is_pattern(queue: str | None) -> bool:
    """Return whether a source's `queue` means all queues that match it."""
    return bool(_WILD & set(queue or ""))


def matches(queue: str, wanted: str) -> bool:
    """Return whether `wanted`, a pattern or a name, means `queue`."""
    return fnmatchcase(queue, wanted) if is_pattern(wanted) else queue == wanted


def literally(queue: str) -> str:
    """Return what means this queue alone: a name with `*` or `?` in it is no pattern."""
    return _SPECIAL.sub(r"[\g<0>]", queue) if is_pattern(queue) else queue
