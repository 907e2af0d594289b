"""Settings of the interpreter that are put back: for long loops, and for imports."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Generic, TypeVar

_T = TypeVar("_T")


class _Shared(Generic[_T]):
    """A setting that several threads may want changed at once; the last one puts it back."""

    def __init__(self, read: Callable[[], _T], write: Callable[[_T], object], wanted: _T) -> None:
        self._read, self._write, self._wanted = read, write, wanted
        self._lock, self._users, self._usual = threading.Lock(), 0, read()

    @contextmanager
    def changed(self) -> Iterator[None]:
        self._change_users(1)
        try:
            yield
        finally:
            self._change_users(-1)

    def _change_users(self, by: int) -> None:
        with self._lock:
            if self._users == 0:
                self._usual = self._read()
            self._users += by
            self._write(self._wanted if self._users else self._usual)


_collection = _Shared(gc.get_threshold, lambda levels: gc.set_threshold(*levels), (200_000, 20, 20))
_switches = _Shared(sys.getswitchinterval, sys.setswitchinterval, 0.0005)


def rare_garbage_collection() -> AbstractContextManager[None]:
    """Look rarely for cycles, which records make none: every 700 objects it costs a tenth of the time."""
    return _collection.changed()


def quick_thread_switches() -> AbstractContextManager[None]:
    """Let a thread that comes back from a file or a socket wait for one that computes half a millisecond, not
    5 as by default: a replay to RocketMQ takes a seventh less time."""
    return _switches.changed()


@contextmanager
def without_module(name: str) -> Iterator[None]:
    """Let the import of `name` fail meanwhile, as if not installed. One that is imported already stays."""
    missing = _Missing(name)
    sys.meta_path.insert(0, missing)
    try:
        yield
    finally:
        sys.meta_path.remove(missing)


class _Missing(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> None:
        if name == self._name:
            raise ModuleNotFoundError(name)
