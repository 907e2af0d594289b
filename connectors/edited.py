"""What an edit says in JSON, as the type that a value has. Each function raises ValueError for what cannot
become one."""

import json
import struct
from typing import Any

from dlq.core.clock import from_iso
from dlq.core.runtime import bounded_json


def wrong(value: Any, what: str) -> ValueError:
    """Make the error that says what a value is, and what it cannot become."""
    return ValueError(f"it is {what}, and cannot become {json.dumps(value)[:60]}")


def pack(form: str, number: float) -> bytes:
    """Encode a number in the form of its type (see `struct`)."""
    try:
        return struct.pack(f">{form}", number)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{number} does not fit the type that it has") from error


def read_number(value: Any, made_as: type) -> Any:
    """Return an int or a float, which may be given as a text."""
    try:
        if isinstance(value, bool) or not isinstance(value, (made_as, int, str)):
            raise TypeError
        return made_as(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(value, "a whole number" if made_as is int else "a number") from error


def read_truth(value: Any) -> bool:
    """Return true or false, which may be given as a text."""
    found = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise wrong(value, "true or false")
    return found


def read_moment(value: Any, micros: int) -> int:
    """Return a time of ISO 8601, or a number, in units of so many microseconds."""
    found = from_iso(value) if isinstance(value, str) else None
    if found is not None:
        return found // micros
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(value, "a time")
    return value


def refuse_shown_bytes(value: Any) -> None:
    """Refuse bytes that are no text: they are shown with `\\\\xff`, which may also be four characters."""
    if isinstance(value, str) and "\\x" in value:
        raise ValueError("it holds bytes that are no text, and cannot be edited as text")


def read_nested(value: Any, made_as: type, word: str) -> Any:
    """Return an object or a list, which may be given as JSON, as an export shows it."""
    if isinstance(value, str):
        try:
            value = bounded_json.loads(value.encode())
        except ValueError as error:
            raise ValueError(f"it is {word}, and its new text is no JSON: {error}") from error
    if not isinstance(value, made_as):
        raise wrong(value, word)
    return value
