"""Time, where a test can replace it: one function, microseconds since the epoch, UTC."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def to_micros(moment: datetime) -> int:
    """An aware datetime as microseconds since the epoch, exactly."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def iso(micros: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC, e.g. 2026-11-02T03:12:09Z."""
    text = datetime.fromtimestamp(micros // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = micros % 1_000_000
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"


def from_iso(text: str) -> int | None:
    """ISO 8601 (with `Z` or an offset; without a zone it is UTC) as microseconds, or None."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
