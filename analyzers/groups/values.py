"""Few words for values that may be missing: what is not known decides nothing."""

from collections.abc import Iterable
from typing import TypeVar

from dlq.core import clock

_V = TypeVar("_V", int, str)

_SECOND, _MILLI = 1_000_000, 1_000


def highest(one: _V | None, other: _V | None) -> _V | None:
    """Return the higher one, as far as they are known."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def lowest(one: _V | None, other: _V | None) -> _V | None:
    """Return the lower one, as far as they are known."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def in_order(value: int | None) -> tuple[bool, int]:
    """Return a key to sort by: what is not known comes first."""
    return (value is not None, value or 0)


def is_within(later: int | None, earlier: int | None, micros: int) -> bool:
    """Return whether it is known that less time than this lies between the two."""
    return later is not None and earlier is not None and later - earlier < micros


def second(at: int) -> str:
    """2026-11-02T03:12:09Z"""
    return clock.iso(at - at % _SECOND)


def millisecond(at: int) -> str:
    """2026-11-02T03:12:09.250Z"""
    return f"{second(at).removesuffix('Z')}.{at % _SECOND // _MILLI:03d}Z"


def join_known(parts: Iterable[str | None], between: str) -> str:
    """Return those parts that are there."""
    return between.join(part for part in parts if part is not None)
