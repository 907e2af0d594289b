"""Durations and sizes as people write them, and what nobody can mean."""

from collections.abc import Callable

import pytest

from dlq.core.errors import UsageError
from dlq.core.units import seconds, size


def test_a_number_and_a_unit_are_read() -> None:
    assert (seconds("1.5h"), seconds("250ms"), seconds(7)) == (5400.0, 0.25, 7.0)
    assert (size("2GB"), size("1KiB"), size("9")) == (2_000_000_000, 1024, 9)


@pytest.mark.parametrize("read", [seconds, size])
@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e9", f"{'9' * 400}", "٣x"])
def test_what_is_no_number_or_larger_than_anything_is_refused_in_a_short_line(
    read: Callable[[str], float], text: str
) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(("read", "text"), [(seconds, "99999999999999999w"), (size, "99999999TB")])
def test_more_than_calendars_and_disks_know_is_refused(read: Callable[[str], float], text: str) -> None:
    with pytest.raises(UsageError):
        read(text)
