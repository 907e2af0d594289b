"""How much memory a server may take whose questions others ask."""

import os
import resource

_MOST = 6 * 2**30
"""Bytes. A body of 512 MiB, which is shown in several forms, needs half of it."""


def bound_memory(most: int = _MOST) -> None:
    """Let what takes more fail, instead of the process or others on this host: SQL makes long texts of short
    ones, and DuckDB's own limit does not count them. What the server starts is not bound."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [most, there * 3 // 4, *([hard] if hard != resource.RLIM_INFINITY else [])]
    resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
