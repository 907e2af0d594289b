"""Progress on stderr: one line that is written again and again. Nothing off a terminal, nothing with -q.

It needs no escape sequence: a line is made empty with blanks.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlq.cli.context import Context
from dlq.core.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from dlq.capture.attempt import Tally
    from dlq.replay.apply import Run

_EVERY = 0.2


@contextmanager
def pull_progress(context: Context, source: str) -> Iterator[Callable[["Tally", int | None], None]]:
    """A function to call with the counts so far and the total."""
    with _line(context) as draw:
        yield lambda tally, total: draw(
            lambda elapsed: f"{source}: {_pulled(tally.delivered, total, tally.bytes, elapsed)}"
        )


def _pulled(count: int, total: int | None, size: int, elapsed: float) -> str:
    rate = count / elapsed if elapsed else 0.0
    parts = [f"{count:,} of {total:,}" if total else f"{count:,}", f"{rate:,.0f}/s", human_bytes(size)]
    if total and rate and count < total:
        parts.append(f"{human_seconds((total - count) / rate)} left")
    return ", ".join(parts)


@contextmanager
def replay_progress(context: Context, plan: str) -> Iterator[Callable[["Run"], None]]:
    """A function to call with what an apply has done so far."""
    with _line(context) as draw:
        yield lambda run: draw(lambda elapsed: f"{plan}: {_replayed(run, elapsed)}")


def _replayed(run: "Run", elapsed: float) -> str:
    done = run.sent + run.skipped
    left = f", {human_seconds((run.total - done) * elapsed / done)} left" if 0 < done < run.total else ""
    return f"{done:,} of {run.total:,}, {run.sent / elapsed:,.0f}/s{left}"


@contextmanager
def _line(context: Context) -> Iterator[Callable[[Callable[[float], str]], None]]:
    """A function that draws what the given one makes of the seconds since the start, now and then."""
    if context.quiet or not sys.stderr.isatty():
        yield lambda _text: None
        return
    room = shutil.get_terminal_size().columns - 1
    started, last = time.monotonic(), 0.0

    def draw(text: Callable[[float], str]) -> None:
        nonlocal last
        elapsed = time.monotonic() - started
        if elapsed - last >= _EVERY:
            last = elapsed
            sys.stderr.write(f"\r{text(elapsed)[:room]:<{room}}")
            sys.stderr.flush()

    try:
        yield draw
    finally:
        sys.stderr.write(f"\r{'':<{room}}\r")
        sys.stderr.flush()
