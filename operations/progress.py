"""How what takes long goes on: a line for each source or plan, which whoever listens may read at any time."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dlq.core.values.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from dlq.capture.attempt import Tally
    from dlq.replay.runs.apply import Run

SILENT = 5.0
"""Seconds without news after which is said what is waited for."""


@dataclass
class Line:
    """What goes on with one source or plan, and who is waited for where nothing does."""

    name: str
    awaited: str
    begun: bool = True
    _text: Callable[[float], str] = lambda _elapsed: ""
    _started: float = field(default_factory=time.monotonic)
    _heard: float = field(default_factory=time.monotonic)
    _over: bool = False

    def begin(self) -> None:
        """Begin: its turn has come, and from now on silence counts."""
        self.begun, self._started, self._heard = True, time.monotonic(), time.monotonic()

    def wait_for(self, awaited: str) -> None:
        """Note that somebody else is waited for now."""
        self.awaited, self._heard = awaited, time.monotonic()

    def news(self, text: Callable[[float], str]) -> None:
        """Note that something came; `text` makes the line of the seconds since the start."""
        self._text, self._heard = text, time.monotonic()

    def end(self) -> None:
        """End: nothing is waited for any more."""
        self._over = True

    @property
    def silence(self) -> float:
        """Seconds since the last news."""
        return time.monotonic() - self._heard if self.begun and not self._over else 0.0

    def __str__(self) -> str:
        if not self.begun:
            return f"{self.name}: waits for its turn"
        if self.silence >= SILENT:
            return f"{self.name}: waiting for {self.awaited}, {human_seconds(self.silence)} without an answer"
        return f"{self.name}: {self._text(time.monotonic() - self._started)}"


def tell_pulled(line: Line, tally: "Tally", total: int | None) -> None:
    """Tell a line what a pull has done so far."""
    line.news(partial(_say_pulled, tally.delivered, total, tally.bytes))


def _say_pulled(count: int, total: int | None, size: int, elapsed: float) -> str:
    rate = count / elapsed if elapsed else 0.0
    parts = [f"{count:,} of {total:,}" if total else f"{count:,}", f"{rate:,.0f}/s", human_bytes(size)]
    if total and rate and count < total:
        parts.append(f"{human_seconds((total - count) / rate)} left")
    return ", ".join(parts)


def tell_sent(line: Line, run: "Run") -> None:
    """Tell a line what an apply has done so far."""
    line.news(partial(_say_sent, run))


def _say_sent(run: "Run", elapsed: float) -> str:
    done = run.sent + run.skipped
    left = f", {human_seconds((run.total - done) * elapsed / done)} left" if 0 < done < run.total else ""
    return f"{done:,} of {run.total:,}, {run.sent / elapsed:,.0f}/s{left}"
