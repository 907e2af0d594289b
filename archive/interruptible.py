"""A connection to DuckDB whose questions end where Ctrl-C does, or the time of a run."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from dlq.core.runtime import patience

if TYPE_CHECKING:
    import duckdb


class _Asked:
    """What works in a thread while the main one waits, to which Python gives signals: within a long task
    DuckDB hears none, and else it hides what the handler of a signal has raised."""

    def __init__(self, asked: Any, wait_for: Callable[..., Any]) -> None:
        self._asked, self._wait_for = asked, wait_for

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._asked, name)
        is_waited_for = callable(found) and threading.current_thread() is threading.main_thread()
        return partial(self._wait_for, found) if is_waited_for else found

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._asked)
        while (batch := self._wait_for(next, batches, None)) is not None:
            yield batch


class Interruptible(_Asked):
    """A connection that works so, and its answers."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        super().__init__(connection, self._work)
        self._connection, self._worker = connection, ThreadPoolExecutor(1)

    def _work(self, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        import duckdb

        running = self._worker.submit(work, *given, **named)
        try:
            done = running.result()
        finally:
            while not running.done():  # before it has begun there is nothing to interrupt
                self._connection.interrupt()
                wait([running], patience.BLINK)
        if done is self._connection:
            return self
        is_lazy = isinstance(done, (duckdb.DuckDBPyRelation, pa.RecordBatchReader))
        return _Asked(done, self._work) if is_lazy else done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()
