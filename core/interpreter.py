"""Settings of the interpreter for long loops, put back at their end."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Records and letters make no cycles: looking for some every 700 objects costs a tenth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


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
