"""Durations, sizes, times and versions as people write them, and what nobody can mean."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from support.rows import each_row

from dlq.core.clock import datable, from_iso, iso
from dlq.core.errors import UsageError
from dlq.core.runtime import patience
from dlq.core.values.units import seconds, seconds_ahead, size, wait_seconds
from dlq.core.values.versions import LONGEST, is_older, is_version


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


LAST = "9999-12-31T23:59:59.999999Z"


@each_row("text", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.000001Z", "2026-11-02T03:12:09Z", LAST])
def test_a_time_is_written_as_it_is_read(text: str) -> None:
    micros = from_iso(text)
    assert micros is not None
    assert iso(micros) == text


def test_a_time_beyond_the_calendar_is_none_and_is_shown_as_its_end() -> None:
    beyond = ("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", "10000-01-01", "")
    assert [from_iso(text) for text in beyond] == [None] * 4
    assert (datable(2**63), datable(-(2**63))) == (None, None)
    assert (iso(2**63), iso(-(2**63))) == (LAST, "0001-01-01T00:00:00Z")


RISING = [
    "2.4.1-alpha", "2.4.1-alpha.1", "2.4.1-beta", "2.4.1-RC.1", "v2.4.1-rc2", "2.4.1-rc10", "2.4.1+build.7",
    "2.4.2", "v2.9.1", "2.10.0-SNAPSHOT", "2.10", "V3", "20260101.0", "20260101.0.1",
]  # fmt: skip


def test_versions_compare_as_numbers_and_a_pre_release_is_older_than_its_release() -> None:
    for number, one in enumerate(RISING):
        assert is_version(one)
        assert [is_older(one, other) for other in RISING] == [number < n for n in range(len(RISING))], one


@each_row(
    "one, other", [("2.4", "2.4.0"), ("v2.4.1", "2.4.1"), ("2.4.1+a", "2.4.1+b"), ("1-rc1", " 1.0-RC.1 ")]
)
def test_what_is_written_in_two_ways_is_one_version(one: str, other: str) -> None:
    assert not is_older(one, other)
    assert not is_older(other, one)


@each_row("text", [None, "", "latest", "2.x", "3f9c2a1", "2.4.1.", "-1", "٢.٤", "1" * (LONGEST + 1)])
def test_a_text_that_is_no_version_is_older_than_none(text: str | None) -> None:
    assert not is_version(text or "")
    assert not is_older(text, "2.4.1")
    assert not is_older("0.1", text or "")


@each_row("seconds, pause, longest, turns", [
    (0.0, 1.0, 0.0, [0.0]),
    (-1.0, 1.0, 0.0, [0.0]),
    (2.5, 1.0, 0.0, [0.0, 1.0, 2.0, 2.5]),
    (8.0, 1.0, 3.0, [0.0, 1.0, 3.0, 6.0, 8.0]),
])  # fmt: skip
def test_the_first_turn_is_at_once_and_the_last_when_the_time_is_over(
    seconds: float, pause: float, longest: float, turns: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    slept = lambda pause: now.append(now[-1] + pause)  # noqa: E731
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[-1], sleep=slept))
    assert [now[-1] for _ in patience.tries(seconds, pause, longest)] == turns
