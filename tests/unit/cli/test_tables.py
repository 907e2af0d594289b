"""Tables fit the terminal that they are drawn on."""

import io
from collections.abc import Sequence

from rich.console import Console
from support.rows import each_row

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


WIDTHS: dict[int, tuple[list[str], str]] = {
    80: (
        ["record_id                         source  cause",
         "0123456789abcdef0123456789abcdef  orders  application_error",
         "ffffffffffffffffffffffffffffffff  p       错误"],
        "",
    ),
    40: (
        ["record_id        source  cause",
         "0123456789abcd…  orders  application_er…",
         "ffffffffffffff…  p       错误"],
        "shortened: record_id, cause",
    ),
    20: (
        ["record_id     source", "0123456789a…  orders", "fffffffffff…  p"],
        "shortened: record_id; left out: cause",
    ),
}  # fmt: skip


@each_row("width", WIDTHS)
def test_the_widest_columns_are_shortened_and_then_the_last_ones_left_out(width: int) -> None:
    assert drawn(width) == WIDTHS[width]


def test_one_column_is_always_there() -> None:
    assert all(drawn(width)[0][0].startswith("recor") for width in range(1, 8))


def test_a_pipe_gets_all_and_so_does_a_single_column() -> None:
    lines, unseen = drawn(20, terminal=False)
    assert (lines[1].split(), unseen) == (ROWS[0], "")
    assert drawn(20, columns=["sql"], rows=[["x" * 50]]) == (["sql", "x" * 50], "")
    assert drawn(80, columns=["a", "b"], rows=[]) == (["a  b"], "")
    long = [["first", "it is as it is or it is not as it is"]]  # a sentence goes on in the next line
    lines, unseen = drawn(31, columns=["rule", "when"], rows=long)
    assert (lines[1:], unseen) == (["first  it is as it is or it is", "       not as it is"], "")


LONG = "a" * 30
NAMES = [f"column{number}" for number in range(70)]


@each_row(("width", "columns", "row", "shown", "told"), [
    (30, ["a", "b"], [LONG, "1"], f"{'a' * 26}…  1", "shortened: a"),
    (30, ["a", "b"], ["8" * 20, "9" * 20], "8" * 20, "left out: b"),
    (34, ["a", "none", "c"], [LONG, "", "1"], f"{LONG}  1", "left out: none"),
    (25, ["source", "pull_id", "left"], ["orders", "p" * 12, "3"], "orders  3", "left out: pull_id"),
    (30, ["what", "last", "oldest"], [LONG, *["11-30 17:48"] * 2], f"{'a' * 16}…  11-30 17:48",
        "shortened: what; left out: oldest"),
    (30, ["a", "b"], ["漢" * 30, "1"], f"{'漢' * 13}…  1", "shortened: a"),
    (20, NAMES, ["x"] * 70, "x        x", f"left out: {', '.join(NAMES[2:7])} and 63 more"),
])  # fmt: skip
def test_numbers_are_never_cut_and_what_is_empty_or_missed_least_goes_first(
    width: int, columns: Sequence[str], row: Sequence[str], shown: str, told: str
) -> None:
    (_head, line), unseen = drawn(width, columns=columns, rows=[row])
    assert (line, unseen) == (shown, told)
