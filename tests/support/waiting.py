"""Tests wait for what is to happen, not for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def eventually(look: Callable[[], _T], seconds: float = 20) -> _T:
    """What `look` returns as soon as it is true; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
    return found
