"""`--since` of every command that has it: a time, or how long ago."""

import pytest

from dlq.core.clock import from_iso, now
from dlq.core.errors import UsageError
from dlq.operations.selecting import read_moment


def test_a_moment_is_a_time_or_a_duration_back_from_now_that_ends_at_the_epoch() -> None:
    assert read_moment("2026-11-02T03:00:00Z") == from_iso("2026-11-02T03:00:00Z")
    assert read_moment("24h") == pytest.approx(now() - 86_400_000_000, abs=5_000_000)
    assert read_moment("99999999999d") == 0
    with pytest.raises(UsageError, match="neither a time"):
        read_moment("soon")
