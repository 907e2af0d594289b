"""A hard end for a step that might hang: SIGALRM, so that waiting in a library ends as well."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from dlq.core.errors import DlqError
from dlq.core.values.units import human_seconds

_SHORTEST = 0.05
_NO_TIME = "no time is left (max_time)"


class OutOfTime(DlqError):
    """The step did not end in the time it had."""

    advice = "raise the time limit of the profile"


class _Alarm(BaseException):
    """Not an Exception, so that no library in the middle of the step takes it for a fault of its own."""


class Clock:
    """The time of one run; `total` seconds, or None for no end."""

    def __init__(self, total: float | None) -> None:
        self._started, self._total = time.monotonic(), total

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def out_of_time(self) -> OutOfTime:
        """Return the error that says that the time is over."""
        return _out_of_time(self.elapsed, _NO_TIME)

    def seconds_left(self, share: float = 1.0) -> float | None:
        """Return seconds until this share of the time is over, never less than 0; None without an end."""
        return None if self._total is None else max(0.0, self._total * share - self.elapsed)


def _out_of_time(seconds: float, why: str) -> OutOfTime:
    return OutOfTime(f"stopped: {why}, after {human_seconds(seconds)}")


@contextmanager
def time_limit(seconds: float | None, why: str = _NO_TIME) -> Iterator[None]:
    """Raise OutOfTime, which says why, within the block when it takes longer. For the main thread only."""
    if seconds is None:
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise _Alarm

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(_SHORTEST, seconds))
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Alarm as alarm:  # also one that comes as the block ends
        raise _out_of_time(seconds, why) from alarm
    finally:
        signal.signal(signal.SIGALRM, before)
