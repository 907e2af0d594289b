"""Why a queue that has letters gives none: what management tells of it."""

from collections.abc import Callable, Mapping
from typing import Any

from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.read.lossy import class_name

_FULL, _NAMED = 100, 20
_ELSEWHERE = "{:,} are in flight at other consumers, unacknowledged"
_UNSHOWN = "{:,} came to this reading, and Artemis' STOMP failed to show the content (AMQ332071 in its log)"


def why_silent(queues: Queues, queue: str, held: int, before: Mapping[str, Any]) -> list[str]:
    """Return the causes that are known, in sentences. `held`: letters that this reading itself keeps;
    `before`: what was known of the queue when it began."""
    facts = queues.facts(queue)
    if facts is None or facts.depth <= held:
        return []
    causes = [*obstacles_of(facts.facts)]
    if (others := facts.in_flight - held) > 0:
        is_alone = queues.management is not None and before.get("ConsumerCount") == 0
        causes.append(_unshown(queues, queue, others) if is_alone else _ELSEWHERE.format(others))
    if queues.exclusive_consumers(queue):
        causes.append("an exclusive consumer gets all of them")
    said = "; ".join(causes) or "its broker does not tell why"
    return [f"{queue} has {facts.depth:,} letter(s) and gives none: {said}"]


def obstacles_of(told: Mapping[str, Any]) -> list[str]:
    """Return what keeps a queue from giving anything, by its own attributes."""
    return [cause.format(told[name]) for name, is_so, cause in _TOLD if name in told and is_so(told[name])]


def _unshown(queues: Queues, queue: str, count: int) -> str:
    """Say that Artemis gave letters to us alone, and that they did not come: its STOMP fails at a message of
    a Core client's default type whose body does not begin with a text (AMQ332071), and goes on behind it."""
    told = queues.management.delivered_classes(queue) if queues.management else None
    known = [f"{number} ({class_name(kind)})" for number, kind in list((told or {}).items())[:_NAMED]]
    which = f"; unacknowledged: {', '.join(known)}" if known else ""
    return _UNSHOWN.format(count) + which


_TOLD: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("Paused", lambda value: value is True, "it is paused"),
    ("ScheduledCount", lambda value: isinstance(value, int) and value > 0, "{} are scheduled for later"),
    (
        "CursorPercentUsage",
        lambda value: isinstance(value, int) and value >= _FULL,
        "its cursor is full ({} percent of its memory)",
    ),
    (
        "MemoryPercentUsage",
        lambda value: isinstance(value, int) and value >= _FULL,
        "it uses {} percent of its memory limit, at which the broker pages in no more",
    ),
)  # fmt: skip
