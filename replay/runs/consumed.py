"""What shows that letters which were sent are consumed: a step of a ramp proves nothing without it.

A queue's letters are taken in order. So those of a step are done when as many were acknowledged as lay before
them and themselves, or when no more wait than before and as many were acknowledged as were sent.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

from dlq.connectors.base import Consumption, Target
from dlq.replay.plans.destinations import Destination
from dlq.replay.runs.brokers import Brokers

Standing = Mapping[Destination, Sequence[Consumption]]
"""How far the consumers of each place are; nothing of places of which no broker tells."""
Consumed = Literal["consumed", "taken", "unknown", "held", "waiting"]
"""Of the letters of a step, from best to worst: acknowledged, or died again; taken by a consumer, and nothing
tells more; nothing tells of them; taken and not acknowledged; not taken."""
IN_WORDS: Mapping[Consumed, str] = {
    "consumed": "all were consumed",
    "taken": "all were taken; nothing shows whether they were acknowledged, or died where no source looks",
    "unknown": "nothing shows whether they were consumed",
    "held": "taken, and not acknowledged",
    "waiting": "not all were consumed",
}
_WORST_LAST: Sequence[Consumed] = tuple(IN_WORDS)
MISSING: Collection[Consumed] = ("held", "waiting")
"""What stops a ramp."""


def read_standing(brokers: Brokers, places: Collection[Destination]) -> Standing:
    """Ask the brokers how far the consumers of these places are. Raises BrokerError."""
    targets: dict[str, list[Target]] = defaultdict(list)
    for broker, target in places:
        targets[broker].append(target)
    asked = {broker: brokers.get(broker).consumption(some) for broker, some in targets.items()}
    return {(broker, target): seen for broker, found in asked.items() for target, seen in found.items()}


def is_told(receivers: Sequence[Consumption]) -> bool:
    """Return whether those who receive something tell what they have acknowledged."""
    return bool(receivers) and all(one.acknowledged is not None for one in receivers)


def how_far_consumed(
    before: Standing, now: Standing, sent: Mapping[Destination, int], gone: Mapping[Destination, int],
    since: float | None = None,
) -> Consumed:  # fmt: skip
    """Return what is known of a step of `sent` letters, of which `gone` are elsewhere: dead again, or never
    taken by the broker. With `since`, for how many seconds they are out, it is known of each of them."""
    judge = _of_receiver if since is None else partial(_of_each, since)
    found = [_of_place(judge, before.get(at, ()), now.get(at, ()), n, gone[at]) for at, n in sent.items()]
    return max(found, key=_WORST_LAST.index, default="unknown")


def _of_place(
    judge: Callable[[Consumption | None, Consumption, int, int], Consumed],
    before: Sequence[Consumption],
    now: Sequence[Consumption],
    sent: int,
    gone: int,
) -> Consumed:
    """Return the receivers that have consumers decide, or all where none has."""
    was = {one.receiver: one for one in before}
    watched = [one for one in now if one.consumers != 0] or now
    found = [judge(was.get(one.receiver), one, sent, gone) for one in watched]
    return max(found, key=_WORST_LAST.index, default="unknown")


def _of_each(since: float, before: Consumption | None, now: Consumption, sent: int, gone: int) -> Consumed:
    """Return "consumed" if nothing is left, or as many were acknowledged as lay there with them, by numbers
    younger than the letters. What died is acknowledged, too, on some brokers: it may not count twice."""
    done = _count_acknowledged(before, now)
    if now.unacknowledged is not None and since < now.age:
        return "waiting"
    if _backlog(now):
        lay_before = _backlog(before) if before else 0
        return "consumed" if done is not None and done >= sent + lay_before else "waiting"
    if done is None:
        return "taken"
    return "consumed" if done + gone >= sent else "held"


def _backlog(one: Consumption) -> int:
    return max(one.waiting, one.unacknowledged or 0)


def _of_receiver(before: Consumption | None, now: Consumption, sent: int, gone: int) -> Consumed:
    lay_before = before.waiting if before else 0
    done = _count_acknowledged(before, now)
    if done is not None and done + gone >= sent + lay_before:
        return "consumed"
    if now.waiting > min(lay_before, sent):
        return "waiting"
    if done is None:
        return "taken"
    return "consumed" if done + gone >= sent else "held"


def _count_acknowledged(before: Consumption | None, now: Consumption) -> int | None:
    """Return how many were acknowledged since `before`; a counter that has begun anew counts from nothing."""
    if now.acknowledged is None or (before is not None and before.acknowledged is None):
        return None
    start = (before.acknowledged or 0) if before else 0
    return now.acknowledged - start if now.acknowledged >= start else now.acknowledged


def progress(now: Standing) -> tuple[int, int]:
    """Return two numbers of which one grows when consumers do something: what they have taken, and
    acknowledged."""
    seen = [one for receivers in now.values() for one in receivers]
    return -sum(one.waiting for one in seen), sum(one.acknowledged or 0 for one in seen)


def age(now: Standing) -> float:
    """Return seconds that the oldest of the numbers may be old."""
    return max((one.age for receivers in now.values() for one in receivers), default=0.0)


def in_words(now: Standing) -> str:
    """Return who has how much before it: 3 wait in orders (1 consumer)."""
    return ", ".join(
        f"{one.waiting:,} wait in {one.receiver}{_with_consumers(one.consumers)}"
        for receivers in now.values()
        for one in receivers
    )


def _with_consumers(number: int | None) -> str:
    known = {None: "", 0: " (no consumer)", 1: " (1 consumer)"}
    return known.get(number, f" ({number} consumers)")
