"""Which time a record has where it comes to: that of the letter, or the one at which it comes.

Retention counts from a record's own time, and a broker refuses times that are too far away.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.kafka.look.cluster import number_in
from dlq.core.values.units import human_seconds

_FOREVER = "-1"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Of brokers before 4.0, for both directions."""
_EMPTIED = 60_000
"""Milliseconds: a topic that keeps less is one that is being emptied, or holds nothing for long enough."""


class Times(NamedTuple):
    """What a topic does with records by their own time, in milliseconds; below zero: that is not known."""

    keeps: float = -1
    """It deletes what is older."""
    before: float = -1
    """It refuses what is older."""
    after: float = -1
    """It refuses what lies further ahead of the broker's clock."""
    is_its_own: bool = False
    """Whether it gives each record the time at which it comes."""


def times_of(settings: Mapping[str, str] | None) -> Times:
    """Return the times of a topic with these settings; with None nobody tells them."""
    told = settings or {}
    keeps: float = _least(told, "retention.ms")
    if "delete" not in told.get("cleanup.policy", "delete") or told.get("retention.ms") == _FOREVER:
        keeps = float("inf")
    return Times(
        keeps,
        _least(told, _BEFORE, _DIFFERENCE),
        _least(told, _AFTER, _DIFFERENCE),
        told.get("message.timestamp.type") == "LogAppendTime",
    )


def _least(settings: Mapping[str, str], *names: str) -> int:
    told = [number_in(settings, name) for name in names]
    return min((number for number in told if number is not None), default=-1)


def why_not_kept(topic: str, times: Times, published: int | None, now: float) -> str | None:
    """Return why a letter does not keep the time at which it was published; None where it does.

    Kept is what is so old for as long again. Our clock is not the broker's."""
    age = now - (published or 0)
    holds = (
        times.is_its_own,
        published is None,
        times.keeps < 0 or times.before < 0 or times.after < 0,
        age >= times.keeps / 2,
        age >= times.before,
        -age > times.after / 2,
    )
    return _NOT_KEPT[holds.index(True)].format(topic) if True in holds else None


_NOT_KEPT = (
    "{} gives records its own (message.timestamp.type)",
    "when they were published is not known",
    "it is not known which times {} keeps (DESCRIBE_CONFIGS)",
    "{} would delete them for their age, soon or at once (retention.ms)",
    f"{{}} takes none that was published so long ago ({_BEFORE})",
    f"{{}} takes none that lies so far ahead ({_AFTER})",
)


def why_gone(topic: str, times: Times) -> str | None:
    """Return why what comes is gone at the next check of retention, whatever its time."""
    if not 0 <= times.keeps < _EMPTIED:
        return None
    kept = human_seconds(times.keeps / 1000)
    return f"{topic} deletes records after {kept} (retention.ms), as one does that is being emptied"
