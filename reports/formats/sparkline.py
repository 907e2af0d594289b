"""The timeline as a row of blocks, for everything that shows text."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dlq.core.values.units import human_seconds
from dlq.reports.headline import minutes

_BARS = "▁▂▃▄▅▆▇█"
_LARGEST_STEP = 3
"""Characters of one step at most: a short timeline does not fill a wide terminal."""


class Sparkline(NamedTuple):
    """Blocks, the axis below them, and what they mean."""

    bars: str
    axis: str
    note: str


def draw(timeline: Mapping[str, Any], width: int) -> Sparkline | None:
    """Return the timeline of a report in `width` characters; None when there is only one step."""
    buckets = timeline["buckets"]
    if len(buckets) < 2:
        return None
    peak = max(buckets, key=lambda bucket: bucket["letters"])
    repeat = max(1, min(_LARGEST_STEP, width // len(buckets)))
    bars = "".join(_bar(bucket["letters"], peak["letters"]) * repeat for bucket in buckets)
    first, last = minutes(buckets[0]["start"]), minutes(buckets[-1]["start"])
    end = last[11:] if first[:10] == last[:10] else last
    step = human_seconds(timeline["step_seconds"])
    note = f"peak {peak['letters']:,} at {minutes(peak['start'])}; one step is {step}"
    return Sparkline(bars, f"{first} {end.rjust(len(bars) - len(first) - 1)}", note)


def _bar(count: int, most: int) -> str:
    return " " if not count else _BARS[min(len(_BARS) - 1, count * len(_BARS) // (most + 1))]
