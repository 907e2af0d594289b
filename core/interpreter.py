"""Settings of the interpreter for long loops, put back at their end."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
