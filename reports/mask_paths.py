"""What `[[mask]] json` hides: members of a JSON value."""

from collections.abc import Sequence
from typing import Any

MASKED = "[masked]"


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
