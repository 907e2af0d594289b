"""Work on several things at once, in threads, that Ctrl-C ends after what is begun is safe."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from dlq.core.errors import unwrap_interrupt

_GRACE = 2.0
"""Seconds in which work that was told to stop brings what it holds to safety."""

_T = TypeVar("_T")
_R = TypeVar("_R")

Stop = Callable[[], bool]
"""Whether the user has asked to end."""


def _leave() -> None:
    """Leave nothing that has to be put in order."""
    raise KeyboardInterrupt


def do_at_once(
    work: Callable[[_T, Stop], _R],
    items: Sequence[_T],
    most: int,
    interrupted: Callable[[], None] = _leave,
    seconds: float | None = None,
) -> Iterator[tuple[_T, Future[_R]]]:
    """Do `work` on every item, `most` at a time; each item with its future, in their order.

    On Ctrl-C `interrupted` is called (by default nothing is waited for) and `stop` says so to the work; what
    was not begun is cancelled. On a
    second Ctrl-C nothing is waited for. Without a limit one at a time is worked on in the caller's thread,
    where Ctrl-C is heard at once.

    After `seconds` the work is told to stop, too. What hangs so that it does not hear that is left behind
    after a moment, and its future is not done.
    """
    stop = threading.Event()
    futures: list[Future[_R]] = [Future() for _ in items]
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(len(items)):
        waiting.put(number)

    def run() -> None:
        while (number := _next(waiting)) is not None:
            if stop.is_set():
                futures[number].cancel()
                futures[number].set_running_or_notify_cancel()
            else:
                _fill(futures[number], partial(work, items[number], stop.is_set), stop)

    if seconds is None and min(most, len(items)) == 1:
        run()
    else:
        for _ in range(min(most, len(items))):
            threading.Thread(target=run, daemon=True).start()
        _wait(futures, stop, interrupted, seconds)
    yield from zip(items, futures, strict=True)


def _next(waiting: "SimpleQueue[int]") -> int | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _fill(future: Future[_R], work: Callable[[], _R], stop: threading.Event) -> None:
    try:
        future.set_result(work())
    except BaseException as raised:  # noqa: BLE001 (whoever asks for the result gets it)
        error = unwrap_interrupt(raised)
        if isinstance(error, KeyboardInterrupt):
            stop.set()
        future.set_exception(error)


def _wait(
    futures: Sequence[Future[_R]],
    stop: threading.Event,
    interrupted: Callable[[], None],
    seconds: float | None,
) -> None:
    try:
        if wait(futures, seconds).not_done:
            stop.set()
            wait(futures, _GRACE)
    except KeyboardInterrupt:
        stop.set()
        interrupted()
        wait(futures, seconds)
