"""A connection to DuckDB whose questions end where Ctrl-C does, or the time of a run."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from dlq.core.runtime import patience

if TYPE_CHECKING:
    import duckdb


class Interruptible:
    """A connection that works in a thread, while the main one waits, to which Python gives signals: within a
    long task DuckDB hears none, and else it hides what the handler of a signal has raised."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self._connection, self._worker = connection, ThreadPoolExecutor(1)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        is_waited_for = callable(found) and threading.current_thread() is threading.main_thread()
        return partial(self._wait_for, found) if is_waited_for else found

    def _wait_for(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        running = self._worker.submit(work, *given, **named)
        try:
            done = running.result()
        finally:
            while not running.done():  # before it has begun there is nothing to interrupt
                self._connection.interrupt()
                wait([running], patience.BLINK)
        return self if done is self._connection else done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()
