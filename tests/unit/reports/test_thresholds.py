"""--fail-on: what passes, what does not, and what is no threshold."""

import pytest
from support.rows import each_row

from dlq.core.errors import UsageError
from dlq.reports.thresholds import NAMES, parse

COUNTS = {**dict.fromkeys(NAMES, 0), "total": 200, "unknown": 21, "replay": 5, "oldest": 5400}


@each_row(
    ("expression", "told"),
    [
        ("unknown > 10%", "unknown > 10%: unknown is 10.5% (21 of 200)"),
        ("unknown>10.5%", None),
        ("unknown >= 10.5 %", "unknown >= 10.5 %: unknown is 10.5% (21 of 200)"),
        ("total > 199", "total > 199: total is 200"),
        ("total > 200", None),
        ("in_doubt > 0", None),
        ("replay = 5", "replay = 5: replay is 5"),
        ("replay != 5", None),
        ("oldest > 1h", "oldest > 1h: oldest is 1h 30m"),
        ("oldest >= 5400", "oldest >= 5400: oldest is 1h 30m"),
        ("oldest > 2h", None),
        ("application_error < 1", "application_error < 1: application_error is 0"),
    ],
)
def test_a_threshold_tells_what_passed_it(expression: str, told: str | None) -> None:
    (threshold,) = parse([expression])

    assert threshold.describe_passed(COUNTS) == told


def test_a_share_of_nothing_is_zero() -> None:
    (threshold,) = parse(["unknown > 0%"])

    assert threshold.describe_passed(dict.fromkeys(NAMES, 0)) is None


@pytest.mark.parametrize(
    "expression", ["", "unknown", "unknown > ten", "unknown > -1", "> 5", "unknown > 5 or 1"]
)
def test_what_is_no_threshold_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="no threshold"):
        parse([expression])


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("oldest > 10%", "a duration, e.g. 1h"),
        ("oldest > 10 fortnights", "not a duration"),
        ("total > 1h", "a number, or a share with %"),
    ],
)
def test_what_cannot_be_compared_is_refused(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse([expression])


def test_an_unknown_name_is_refused_with_the_one_meant() -> None:
    with pytest.raises(UsageError, match="did you mean 'in_doubt'"):
        parse(["indoubt > 1"])
