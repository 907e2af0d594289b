"""Settings of the interpreter that are put back: for long loops, and for imports."""

import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType

_lock = threading.Lock()
_users = 0
_usual = gc.get_threshold()


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Records and letters make no cycles: looking for some every 700 objects costs a tenth of the time.

    Several threads may want it at once; the last one puts it back."""
    _change_users(1)
    try:
        yield
    finally:
        _change_users(-1)


def _change_users(by: int) -> None:
    global _users, _usual
    with _lock:
        if _users == 0:
            _usual = gc.get_threshold()
        _users += by
        gc.set_threshold(*((200_000, 20, 20) if _users else _usual))


@contextmanager
def quick_thread_switches() -> Iterator[None]:
    """A thread that comes back from a database or a socket waits for one that computes, by default up to
    5 ms each time; with half a millisecond a replay to RocketMQ takes a seventh less time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def without_module(name: str) -> Iterator[None]:
    """To import `name` fails meanwhile, as if it was not installed; one that is imported already stays."""
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
