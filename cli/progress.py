"""Progress of a pull on stderr: count of total, rate, bytes, time left. Nothing off a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlq.cli.context import Context
from dlq.core.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from dlq.capture.attempt import Tally

_EVERY = 0.2


@contextmanager
def pull_progress(context: Context, source: str) -> Iterator[Callable[["Tally", int | None], None]]:
    """A function to call with the counts so far and the total."""
    if context.quiet or not sys.stderr.isatty():
        yield lambda _tally, _total: None
        return
    started, last = time.monotonic(), 0.0

    def draw(tally: "Tally", total: int | None) -> None:
        nonlocal last
        elapsed = time.monotonic() - started
        if elapsed - last >= _EVERY:
            last = elapsed
            sys.stderr.write(f"\r\x1b[K{source}: {_line(tally.delivered, total, tally.bytes, elapsed)}")
            sys.stderr.flush()

    try:
        yield draw
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _line(count: int, total: int | None, size: int, elapsed: float) -> str:
    rate = count / elapsed if elapsed else 0.0
    parts = [f"{count:,} of {total:,}" if total else f"{count:,}", f"{rate:,.0f}/s", human_bytes(size)]
    if total and rate and count < total:
        parts.append(f"{human_seconds((total - count) / rate)} left")
    return ", ".join(parts)
