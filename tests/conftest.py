"""What holds for every test."""

import difflib
import gc
import os
import signal
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("support")  # what is checked there says what it saw
pytest_plugins = ["support.real_servers", "support.scheduling", "support.tiers"]

# To make inputs, and to try one, is slow where other tests keep all cores busy, which says nothing of either.
settings.register_profile(
    "some", max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("every", settings.get_profile("some"), max_examples=100)
settings.load_profile("some")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is told at once: a run of an hour that is ended from outside has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        told = f"\n{report.nodeid} failed ({report.when}):\n{report.longreprtext}\n"
        os.write(2, told.encode("utf-8", "backslashreplace"))


_compare_lines = difflib.ndiff


def _compare(left: list[str], right: list[str], *more: Any) -> Iterator[str]:
    """On CI pytest shows in full how two values differ, and `ndiff` compares a thousand lines each with each
    for hours: of so many the first that differ are enough."""
    if len(left) + len(right) > 200:
        return islice(difflib.unified_diff(left, right, n=1, lineterm=""), 200)
    return _compare_lines(left, right, *more)


difflib.ndiff = _compare


# Thousands of tests live to the end: nobody need look through them for what may go, while they come or later.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
