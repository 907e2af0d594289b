"""Processes of this host: since which start of it they run, and whether one still does."""

import os
from contextlib import suppress
from pathlib import Path


def boot_id() -> str | None:
    """Return another one after each start of the host; None where the system has none to tell (random(4))."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return None


def is_running(pid: int) -> bool:
    """Return whether there is a process of this number, whoever runs it."""
    try:
        with suppress(PermissionError):  # somebody else's
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
