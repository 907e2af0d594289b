"""Durations and sizes as people write them, and what nobody can mean."""

from collections.abc import Callable

import pytest
from support.rows import each_row

from dlq.core.errors import UsageError
from dlq.core.units import seconds, seconds_ahead, size, wait_seconds


def test_a_number_and_a_unit_are_read() -> None:
    assert (seconds("1.5h"), seconds("250ms"), seconds(7)) == (5400.0, 0.25, 7.0)
    assert (size("2GB"), size("1KiB"), size("9")) == (2_000_000_000, 1024, 9)


@each_row("read", [seconds, seconds_ahead, size, wait_seconds])
@each_row("text", ["", "x", "-1", "nan", "inf", "1e9", f"{'9' * 400}", "٣x"])
def test_what_is_no_number_is_refused_in_a_short_line(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("read", "text"), [(seconds, "99999999999999999w"), (seconds_ahead, "36501d"), (size, "99999999TB")]
)
def test_more_than_calendars_and_disks_know_is_refused(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(UsageError):
        read(text)


@pytest.mark.parametrize("text", ["0s", "0.9ms", "61m", "2d"])
def test_a_wait_that_drivers_do_not_take_is_refused(text: str) -> None:
    assert (wait_seconds("1ms"), wait_seconds("1h")) == (0.001, 3600.0)
    with pytest.raises(UsageError, match=f"'{text}' is not a timeout"):
        wait_seconds(text)
