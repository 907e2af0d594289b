from support.rows import each_row

from dlq.core.clock import datable, from_iso, iso

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
