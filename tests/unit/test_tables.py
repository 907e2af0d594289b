"""Tables fit the terminal that they are drawn on."""

import io

import pytest
from rich.console import Console

from dlq.cli.tables import draw

COLUMNS = ("record_id", "source", "cause")
ROWS = [["0123456789abcdef0123456789abcdef", "orders", "application_error"], ["f" * 32, "p", "错误"]]


def drawn(width: int, terminal: bool = True) -> tuple[list[str], str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None)
    unseen = draw(console, COLUMNS, ROWS)
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
