"""Durations, sizes and percentages as people write them: 5m, 90d, 50GB, 10%."""

import re

from dlq.core.errors import UsageError
from dlq.core.text import shorten

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}
_CENTURY = 100 * 365 * 86_400.0
_SHORTEST_WAIT, _LONGEST_WAIT = 0.001, 3600.0
_LARGEST = 2.0**63
"""Seconds or bytes."""
MOST = 10**15
"""Of letters, or anything else that is counted: more cannot be meant."""
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def seconds(text: str | float) -> float:
    """`5m`, `30s`, `1.5h`, `90d`; a bare number is seconds. Raises UsageError."""
    match = _NUMBER.fullmatch(str(text))
    unit = match[2] or "s" if match else ""
    if match is None or unit not in _SECONDS or (found := float(match[1]) * _SECONDS[unit]) >= _LARGEST:
        told = shorten(str(text), 80)
        raise UsageError(f"{told!r} is not a duration; write it like 5m ({', '.join(_SECONDS)})")
    return found


def seconds_ahead(text: str | float) -> float:
    """`seconds` until something ends, or since: no calendar knows when it is more than a few thousand years.
    Raises UsageError."""
    found = seconds(text)
    if found > _CENTURY:
        raise UsageError(f"{text!r} is longer than a century; give less")
    return found


def seconds_to_last(text: str | float) -> float:
    """`seconds_ahead` of what has no use without any time. Raises UsageError."""
    found = seconds_ahead(text)
    if not found:
        raise UsageError(f"{text!r} is no time; give more, like 5m")
    return found


def wait_seconds(text: str | float) -> float:
    """`seconds` of a wait for an answer: drivers take none of nothing, and none of days. Raises
    UsageError."""
    found = seconds(text)
    if not _SHORTEST_WAIT <= found <= _LONGEST_WAIT:
        raise UsageError(f"{text!r} is not a timeout; give 1ms to 1h")
    return found


def size(text: str | float) -> int:
    """`50GB`, `512MiB`; a bare number is bytes. Raises UsageError."""
    match = _NUMBER.fullmatch(str(text))
    unit = match[2].upper() if match else ""
    if match is None or unit not in _BYTES or (found := float(match[1]) * _BYTES[unit]) >= _LARGEST:
        told = shorten(str(text), 80)
        raise UsageError(
            f"{told!r} is not a size; write a number and one of KB, MB, GB, TB, MiB, GiB, e.g. 50GB"
        )
    return int(found)


def human_bytes(count: float) -> str:
    """Return a byte count for people: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def human_seconds(duration: float) -> str:
    """Return a duration for people: 5h 12m, 42s."""
    if duration < 1:
        return f"{duration:.1f}s"
    parts = []
    rest = round(duration)
    for name, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])
