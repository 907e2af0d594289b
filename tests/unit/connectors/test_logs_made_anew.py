"""A log that was made anew is known by the letter where the last reading of it ended."""

import pytest

from dlq.connectors.log import is_another, mark_letter

RESUME = {"orders": 8, **mark_letter("orders", 6, "a letter")}


@pytest.mark.parametrize(
    ("first", "end", "there", "another"),
    [
        (0, 8, {6: "a letter"}, False), (6, 8, {6: "a letter"}, False), (0, 8, {6: "another"}, True),
        (0, 900, {6: "another"}, True), (0, 8, {}, False), (7, 900, {6: "another"}, False),
        (0, 6, {6: "another"}, False),
    ],
    ids=["the same", "the first", "another", "grown past", "not shown", "taken by retention", "shorter"],
)  # fmt: skip
def test_only_another_letter_in_its_place_shows_another_log(
    first: int, end: int, there: dict[int, str], another: bool
) -> None:
    assert is_another("orders", first, end, RESUME, there.get) is another


def test_the_newest_log_of_a_place_is_compared_and_one_without_a_mark_is_taken_for_the_same() -> None:
    resume = {**RESUME, "orders~1": 3}
    assert not is_another("orders", 0, 9, resume, lambda _: "another")
    resume |= mark_letter("orders~1", 2, "a letter")
    assert is_another("orders", 0, 9, resume, lambda _: "another")


def test_marks_grow_as_the_offsets_do() -> None:
    marks = [mark_letter("orders", offset, f"letter {offset}")["orders#letter"] for offset in range(99)]
    assert marks == sorted(marks)
