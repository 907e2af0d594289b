import pytest

from dlq.core.clock import datable, from_iso, iso

LAST = "9999-12-31T23:59:59.999999Z"


@pytest.mark.parametrize(
    "text", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.000001Z", "2026-11-02T03:12:09Z", LAST]
)
def test_a_time_is_written_as_it_is_read(text: str) -> None:
    micros = from_iso(text)
    assert micros is not None
    assert iso(micros) == text


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", "10000-01-01", ""]
)
def test_a_time_beyond_the_calendar_is_none(text: str) -> None:
    assert from_iso(text) is None


@pytest.mark.parametrize(("micros", "shown"), [(2**63, LAST), (-(2**63), "0001-01-01T00:00:00Z")])
def test_a_time_beyond_the_calendar_is_shown_as_its_end(micros: int, shown: str) -> None:
    assert datable(micros) is None
    assert iso(micros) == shown
