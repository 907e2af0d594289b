"""How much memory SQL may take, and a server whose questions others ask."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 6 * 2**30
"""Bytes. A body of 512 MiB, which is shown in several forms, needs half of it."""


OF_SQL = 4 * 2**30
"""Bytes of a command that only asks: twice what DuckDB counts."""


@contextmanager
def bound_for_now() -> Iterator[None]:
    """Let a limit that is set inside count until the end."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def bound_memory(most: int = _MOST) -> None:
    """Let what takes so much more than there is now fail, instead of the process or others on this host: SQL
    makes long texts of short ones, and DuckDB's own limit does not count them. What the server starts is not
    bound."""
    page = os.sysconf("SC_PAGE_SIZE")
    more = min(most, page * os.sysconf("SC_PHYS_PAGES") * 3 // 4)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = _data_bytes(page) + more
    resource.setrlimit(
        resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )


def _data_bytes(page: int) -> int:
    """Return bytes of data that this process has (proc(5), statm)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * page
