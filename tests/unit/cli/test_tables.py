"""Tables fit the terminal that they are drawn on."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from dlq.cli.tables import draw

COLUMNS = ("record_id", "source", "cause")
ROWS = [["0123456789abcdef0123456789abcdef", "orders", "application_error"], ["f" * 32, "p", "错误"]]


def drawn(
    width: int, terminal: bool = True, columns: Sequence[str] = COLUMNS, rows: Sequence[Sequence[str]] = ROWS
) -> tuple[list[str], str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    unseen = draw(console, columns, rows)
    return file.getvalue().splitlines(), unseen


def test_what_fits_is_shown_whole() -> None:
    lines, unseen = drawn(80)

    assert lines == [
        "record_id                         source  cause",
        "0123456789abcdef0123456789abcdef  orders  application_error",
        "ffffffffffffffffffffffffffffffff  p       错误",
    ]
    assert unseen == ""


def test_the_widest_columns_are_shortened() -> None:
    lines, unseen = drawn(40)

    assert lines == [
        "record_id        source  cause",
        "0123456789abcd…  orders  application_er…",
        "ffffffffffffff…  p       错误",
    ]
    assert unseen == "shortened: record_id, cause"


def test_the_last_columns_are_left_out_where_short_ones_do_not_fit() -> None:
    lines, unseen = drawn(20)

    assert lines == ["record_id     source", "0123456789a…  orders", "fffffffffff…  p"]
    assert unseen == "shortened: record_id; left out: cause"


@pytest.mark.parametrize("width", range(1, 8))
def test_one_column_is_always_there(width: int) -> None:
    assert drawn(width)[0][0].startswith("recor")


def test_a_pipe_gets_all() -> None:
    lines, unseen = drawn(20, terminal=False)

    assert lines[1].split() == ROWS[0]
    assert unseen == ""


LONG = "a" * 30
NAMES = [f"column{number}" for number in range(70)]


@pytest.mark.parametrize(
    ("width", "columns", "row", "shown", "told"),
    [
        (30, ["a", "b"], [LONG, "1"], f"{'a' * 26}…  1", "shortened: a"),
        (30, ["a", "b"], ["8" * 20, "9" * 20], "8" * 20, "left out: b"),
        (34, ["a", "none", "c"], [LONG, "", "1"], f"{LONG}  1", "left out: none"),
        (25, ["source", "pull_id", "left"], ["orders", "p" * 12, "3"], "orders  3", "left out: pull_id"),
        (30, ["a", "b"], ["漢" * 30, "1"], f"{'漢' * 13}…  1", "shortened: a"),
        (20, NAMES, ["x"] * 70, "x        x", f"left out: {', '.join(NAMES[2:7])} and 63 more"),
    ],
)
def test_numbers_are_never_cut_and_what_is_empty_or_missed_least_goes_first(
    width: int, columns: Sequence[str], row: Sequence[str], shown: str, told: str
) -> None:
    (_head, line), unseen = drawn(width, columns=columns, rows=[row])

    assert (line, unseen) == (shown, told)


def test_a_sentence_goes_on_in_the_next_line() -> None:
    sentence = "it is as it is or it is not as it is"
    lines, unseen = drawn(31, columns=["rule", "when"], rows=[["first", sentence]])

    assert (lines[1:], unseen) == (["first  it is as it is or it is", "       not as it is"], "")


def test_a_single_column_is_shown_whole() -> None:
    assert drawn(20, columns=["sql"], rows=[["x" * 50]]) == (["sql", "x" * 50], "")


def test_a_table_without_rows_has_its_heading() -> None:
    assert drawn(80, columns=["a", "b"], rows=[]) == (["a  b"], "")
