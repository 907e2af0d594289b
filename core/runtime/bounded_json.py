"""JSON that others may have written: bounded in size and depth before it is worked with."""

import json
from typing import Any

LARGEST = 64 * 2**20
"""Bytes: a manifest that names a million letters fits."""
_DEEPEST = 32
_OPENING = (b"[", b"{")


def loads(data: bytes) -> Any:
    """Return the value; raises ValueError for what is no JSON, too large or nested too deep."""
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise _too_deep() from error
    if sum(map(data.count, _OPENING)) > _DEEPEST:
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError for what is nested too deep."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [x.values() if isinstance(x, dict) else x for x in level if isinstance(x, dict | list)]
        level = [item for items in inner for item in items if isinstance(item, dict | list)]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {_DEEPEST} levels")
