"""--fail-on: what passes, what does not, and what is no threshold."""

import pytest
from support.rows import each_row

from dlq.core.errors import UsageError
from dlq.reports.thresholds import NAMES, parse

COUNTS = {**dict.fromkeys(NAMES, 0), "total": 200, "unknown": 21, "replay": 5, "oldest": 5400}


@each_row(("expression", "told"), [
    ("unknown > 10%", "10.5% (21 of 200)"), ("unknown>10.5%", None),
    ("unknown >= 10.5 %", "10.5% (21 of 200)"), ("total > 199", "200"), ("total > 200", None),
    ("in_doubt > 0", None), ("replay = 5", "5"),
    ("replay != 5", None), ("oldest > 1h", "1h 30m"), ("oldest >= 5400", "1h 30m"), ("oldest > 2h", None),
    ("application_error < 1", "0"),
])  # fmt: skip
def test_a_threshold_tells_what_passed_it(expression: str, told: str | None) -> None:
    (threshold,) = parse([expression])
    name = expression.replace(">", " ").split()[0]
    assert threshold.describe_passed(COUNTS) == (told and f"{expression}: {name} is {told}")


def test_a_share_of_nothing_is_zero() -> None:
    (threshold,) = parse(["unknown > 0%"])
    assert threshold.describe_passed(dict.fromkeys(NAMES, 0)) is None


NONE = "no threshold"


@each_row(("expression", "why"), [
    ("", NONE), ("unknown", NONE), ("unknown > ten", NONE), ("unknown > -1", NONE), ("> 5", NONE),
    ("unknown > 5 or 1", NONE), ("oldest > 10%", "a duration, e.g. 1h"),
    ("oldest > 10 fortnights", "not a duration"), ("total > 1h", "a number, or a share with %"),
    ("indoubt > 1", "did you mean 'in_doubt'"),
])  # fmt: skip
def test_what_is_no_threshold_or_cannot_be_compared_is_refused(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse([expression])
