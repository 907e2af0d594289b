"""JSON that others may have written: bounded in size and depth before it is worked with."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

LARGEST = 64 * 2**20
"""Bytes: a manifest that names a million letters fits."""
_DEEPEST = 32
_OPENING = (b"[", b"{")


class Twice(ValueError):
    """A key stands twice in an object."""


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a mapping of pairs. Of a key that repeats, one reader takes the first and another the last: it
    raises Twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise Twice(f"its key {name[:40]!r} stands there twice; leave one of them")
    return found


def loads(data: bytes, make_object: Callable[[list[tuple[str, Any]]], Any] | None = once_each) -> Any:
    """Return the value; raises ValueError for what is no JSON, too large or nested too deep. `make_object`:
    None for the body of a letter, of which the last of a key that repeats is taken, in half the time."""
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MiB")
    try:
        value = json.loads(data, object_pairs_hook=make_object)
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
