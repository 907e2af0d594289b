"""The order of versions, as a table."""

from support.rows import each_row

from dlq.core.versions import LONGEST, is_older, is_version

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
