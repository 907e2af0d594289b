"""Time, where a test can replace it: one function, microseconds since the epoch, UTC."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], int]

STAMP = "%Y%m%dT%H%M%S"
"""How a name in the archive begins that tells when it was given."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: beyond them Python has no date, and so neither has a report."""


def now() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000


def uptime() -> float:
    """Return seconds that nobody can set: those in which the machine sleeps count, too, where the system
    tells."""
    return time.clock_gettime(_UPTIME)


def oldest_first(names: Iterable[str]) -> list[str]:
    """Sort names that begin, behind their folder, with a STAMP. One of a time to come counts as the oldest: a
    clock was ahead when it was given, and all others may be newer."""
    until = f"{datetime.fromtimestamp(now() // 1_000_000, UTC):{STAMP}}~"
    return sorted(names, key=lambda name: (name.rpartition("/")[2] < until, name))


def to_micros(moment: datetime) -> int:
    """Return an aware datetime as microseconds since the epoch, exactly."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def datable(micros: int) -> int | None:
    """Return the time, or None where no calendar has it: before the year 1 or after 9999."""
    return micros if _FIRST <= micros <= _LAST else None


def iso(micros: int) -> str:
    """Return microseconds since the epoch as ISO 8601 in UTC, e.g. 2026-11-02T03:12:09Z.

    A time beyond the calendar is shown as its first or last: an archive that holds one stays readable.
    """
    moment = _EPOCH + timedelta(microseconds=max(_FIRST, min(micros, _LAST)))
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def from_iso(text: str) -> int | None:
    """Return ISO 8601 (with `Z` or an offset; without a zone it is UTC) as microseconds, or None."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return datable(to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC)))
