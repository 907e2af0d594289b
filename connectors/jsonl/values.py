"""What a line's JSON says as values that a record can hold.

A number or a time beyond its column becomes null, and so does a count below zero: the headers keep what
was said. A wrong type is refused.
"""

from collections.abc import Mapping
from typing import Any

from dlq.core.clock import datable, from_iso
from dlq.core.errors import UsageError
from dlq.core.text import encodable

Texts = Mapping[str, str]

_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("queue_id", "offset", "attempts", "body_size", "priority", "flags", "count"), int),
    **dict.fromkeys(("redelivered", "persistent"), bool),
    **dict.fromkeys(("keys", "routing_keys", "deaths"), list),
    **dict.fromkeys(("headers", "properties"), dict),
}
_TYPE_NAMES = {int: "a whole number", bool: "true or false", list: "a list", dict: "an object", str: "text"}
_WIDE = ("offset", "body_size", "count")
_SIGNED = ("flags",)
_FURTHEST = 1e18
"""No unit gives such a number a date; NaN and infinity, which have no integer, are not below it either."""


def _fit(number: int, bits: int = 32) -> int | None:
    """Return the number where a column of so many bits holds it, else None."""
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def integer(text: str | None, bits: int = 32) -> int | None:
    """Return a header's text as a number, or None."""
    try:
        return _fit(int(text), bits) if text else None
    except ValueError:
        return None


def count_of(text: str | None, bits: int = 32) -> int | None:
    """Return a header's text as a number of things, or None."""
    return _not_below_zero(integer(text, bits))


def _not_below_zero(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def moment(name: str, value: Any) -> int | None:
    """Return ISO 8601, or a number of seconds or milliseconds, as microseconds; raises UsageError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        factor = 1_000 if abs(value) > 1e11 else 1_000_000
        return datable(int(value * factor)) if abs(value) < _FURTHEST else None
    micros = from_iso(value) if isinstance(value, str) else None
    if micros is None:
        raise UsageError(f"{name} must be ISO 8601 or epoch seconds, not {value!r}")
    return micros


def fit_column(name: str, value: Any) -> Any:
    """Return the value for a record's column, or a field of its deaths; raises UsageError: a wrong type."""
    wanted, given = _TYPES.get(name, str), type(value)
    items = value if given is list and name != "deaths" else ()
    if given is not wanted or not all(isinstance(item, str) for item in items):
        raise UsageError(f"record.{name} must be {_TYPE_NAMES[wanted]}, not {value!r}")
    if wanted is not int:
        return value
    number = _fit(value, 64 if name in _WIDE else 32)
    return number if name in _SIGNED else _not_below_zero(number)


def escape_surrogates(value: Any) -> Any:
    """Return a JSON value whose texts UTF-8 can hold."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [escape_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {encodable(name): escape_surrogates(item) for name, item in value.items()}
    return value


def from_millis(text: str | None) -> int | None:
    """Return milliseconds since the epoch in microseconds; None for zero, and what no calendar has."""
    number = integer(text, 64)
    return datable(number * 1000) if number else None
