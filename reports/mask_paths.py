"""Paths of `[[mask]] json`: which members of a JSON value are hidden."""

import re
from collections.abc import Sequence
from typing import Any

from dlq.core.errors import ConfigError

MASKED = "[masked]"

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\['([^']+)'\]")


def steps(path: str) -> list[str]:
    """`$.card.number`, `$.items[*].email`: names and indices; `*` is every member."""
    rest = path.removeprefix("$")
    found = [match[1] or match[2] or match[3] for match in _STEP.finditer(rest)]
    if not path.startswith("$") or not found or "".join(match[0] for match in _STEP.finditer(rest)) != rest:
        raise ConfigError(
            f"[[mask]] json = {path!r} is no path; write it like $.card.number or $.items[*].email"
        )
    return found


def hide(value: Any, path: Sequence[str]) -> bool:
    """Mask what `path` leads to inside `value`, in place; whether there was anything."""
    step, *rest = path
    if isinstance(value, list):
        keys: Sequence[Any] = [i for i in range(len(value)) if step in ("*", str(i))]
    elif isinstance(value, dict):
        keys = [name for name in value if step in ("*", name)]
    else:
        return False
    if rest:
        return sum(hide(value[key], rest) for key in keys) > 0
    for key in keys:
        value[key] = MASKED
    return bool(keys)
