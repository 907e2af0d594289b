"""Queues by pattern: `*` any text, `?` one character, `[ab]` one of these; `[*]` is a star."""

from fnmatch import fnmatchcase

_WILD = frozenset("*?")


def is_pattern(queue: str | None) -> bool:
    """Whether a source's `queue` means all queues that match it."""
    return bool(_WILD & set(queue or ""))


def matches(queue: str, wanted: str) -> bool:
    """Whether `wanted`, a pattern or a name, means `queue`."""
    return fnmatchcase(queue, wanted) if is_pattern(wanted) else queue == wanted
