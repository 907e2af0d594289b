"""Tests wait for what is to happen, not for a time: limits are for what never does, however busy all is."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

PATIENCE = 120.0
STARTUP = 240.0
"""Of a broker or a server; less than a test may take."""
SOON = 30.0
"""For what would go on for ever, or for minutes, if nothing ended it."""
UNHURRIED = f"{PATIENCE:.0f}s"
"""The `timeout` of a client that something else than silence is to end."""


def eventually(look: Callable[[], _T], seconds: float = PATIENCE) -> _T:
    """What `look` returns as soon as it is true; fails when patience ends."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)
    return found


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that init has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def settled(look: Callable[[], _T], seconds: float = 1.0) -> _T:
    """What `look` returns once it has said the same twice, so many seconds apart."""
    before = look()
    while True:
        time.sleep(seconds)
        if (found := look()) == before:
            return found
        before = found
