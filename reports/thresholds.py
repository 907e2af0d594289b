"""`--fail-on`: a number of the report and a bound, e.g. `unknown > 10%`, `in_doubt > 0`, `oldest > 1h`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlq.core.causes import ADVICE, CAUSES
from dlq.core.errors import UsageError
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import human_seconds, seconds

STATES = ("planned", "sending", "confirmed", "returned", "refused", "in_doubt", "held", "dismissed")
NAMES = (
    "total", "open", "no_verdict", *CAUSES, *ADVICE, *STATES,
    "duplicates", "fingerprints", "new_failures", "regressed", "incidents", "ongoing", "oldest",
    "still_queued",
)  # fmt: skip
"""What an expression can name: the report's `counts`, of which `alarming` leaves out snoozed failures."""

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_EXPRESSION = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|==|!=|>|<|=)\s*(\d+(?:\.\d+)?)\s*(%|[A-Za-z]*)\s*")
_AGE = "oldest"
"""The one name that is a duration."""


@dataclass(frozen=True)
class Threshold:
    """`name` compared with `bound`, which is a share of all letters when `percent` is set."""

    text: str
    name: str
    sign: str
    bound: float
    percent: bool

    def describe_passed(self, counts: Mapping[str, int]) -> str | None:
        """Return one line that says what passed the bound, or None."""
        value: float = counts[self.name]
        if self.percent:
            value = 100 * value / counts["total"] if counts["total"] else 0.0
        if not _COMPARE[self.sign](value, self.bound):
            return None
        share = human_seconds(value) if self.name == _AGE else f"{value:,.0f}"
        if self.percent:
            share = f"{value:.1f}% ({counts[self.name]:,} of {counts['total']:,})"
        return f"{self.text.strip()}: {self.name} is {share}"


def parse(expressions: Sequence[str], names: Sequence[str] = NAMES) -> list[Threshold]:
    """Return checked expressions over these names; raises UsageError naming what is wrong, before any work is
    done."""
    return [_parse(text, names) for text in expressions]


def _parse(text: str, names: Sequence[str]) -> Threshold:
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-on {text!r} is no threshold; write e.g. 'unknown > 10%' or 'total > 1000'")
    name, sign, bound, unit = match.groups()
    if name not in names:
        known = ", ".join(names)
        raise UsageError(
            f"--fail-on {text!r}: unknown name {name!r}{suggest(name, names)}; known are {known}"
        )
    if unit not in ("", "%") if name != _AGE else unit == "%":
        wanted = "a duration, e.g. 1h" if name == _AGE else "a number, or a share with %"
        raise UsageError(f"--fail-on {text!r}: {name} must be compared with {wanted}")
    return Threshold(text, name, sign, seconds(bound + unit) if name == _AGE else float(bound), unit == "%")
