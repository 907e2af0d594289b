"""Why a queue that has letters gives none: what management tells of it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.activemq.look.queues import Queues

_FULL = 100


def why_silent(queues: Queues, queue: str, held: int) -> list[str]:
    """Return the causes that are known, in sentences. `held`: letters that this reading itself keeps."""
    facts = queues.facts(queue)
    if facts is None or facts.depth <= held:
        return []
    causes = [*_causes(facts, held, queues.exclusive_consumers(queue))]
    said = "; ".join(causes) or "its broker does not tell why"
    return [f"{queue} has {facts.depth:,} letter(s) and gives none: {said}"]


def obstacles_of(told: Mapping[str, Any]) -> list[str]:
    """Return what keeps a queue from giving anything, by its own attributes."""
    return [cause.format(told[name]) for name, is_so, cause in _TOLD if name in told and is_so(told[name])]


def _causes(facts: QueueFacts, held: int, exclusive: int) -> Iterator[str]:
    yield from obstacles_of(facts.facts)
    others = facts.in_flight - held
    if others > 0:
        yield f"{others:,} are in flight at other consumers, unacknowledged"
    if exclusive:
        yield "an exclusive consumer gets all of them"


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
