"""What shows that letters which were sent are consumed: a step of a ramp proves nothing without it.

A queue's letters are taken in order. So those of a step are done when as many were acknowledged as lay before
them and themselves, or when no more wait than before and as many were acknowledged as were sent. Each
partition of a log counts by itself: what is read of another one says nothing of a letter.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from dlq.connectors.base import Consumption, Reached, Target, consumption_of
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


def up_to(behind: Standing, now: Standing) -> Standing:
    """Return `now` with logs as they were `behind` the letters, and as much of that read as is now: what
    comes later, and what goes, says nothing of them. A log that is not told of any more is as it was."""
    then = {(at, one.receiver): one.logs or {} for at, some in behind.items() for one in some}
    return {at: [_cut(one, then.get((at, one.receiver), {})) for one in some] for at, some in now.items()}


def _cut(now: Consumption, behind: Mapping[str, Reached]) -> Consumption:
    if now.logs is None:
        return now
    reached = {name: min(now.logs.get(name, last).at, last.end) for name, last in behind.items()}
    cut = {name: last._replace(at=reached[name]) for name, last in behind.items()}
    return consumption_of(now.receiver, {**now.logs, **cut}, now.consumers, now.age)


def how_far_consumed(
    before: Standing, now: Standing, sent: Mapping[Destination, int], gone: Mapping[Destination, int],
    since: float | None = None,
) -> Consumed:  # fmt: skip
    """Return what is known of a step of `sent` letters, of which `gone` are elsewhere: dead again, or never
    taken by the broker. With `since`, for how many seconds they are out, it is known of each of them."""
    judge = _of_receiver if since is None else partial(_of_each, since)
    found = [_of_place(judge, before.get(at, ()), now.get(at, ()), n, gone[at]) for at, n in sent.items()]
    return worst_of(found)


def worst_of(found: Iterable[Consumed]) -> Consumed:
    """Return what is known of all of these; none are consumed."""
    return max(found, key=_WORST_LAST.index, default="consumed")


def _of_place(
    judge: Callable[[Consumption | None, Consumption, int, int], Consumed],
    before: Sequence[Consumption],
    now: Sequence[Consumption],
    sent: int,
    gone: int,
) -> Consumed:
    """Return what the receivers that have consumers show, or all where none has. Nothing is known of one that
    is not shown any more."""
    was, shown = {one.receiver: one for one in before}, {one.receiver for one in now}
    watched = [one for one in now if one.consumers != 0] or now
    found = [
        (_of_logs if one.logs is not None else judge)(was.get(one.receiver), one, sent, gone)
        for one in watched
    ]
    if any(one.consumers != 0 and one.receiver not in shown for one in before):
        found.append("unknown")
    return max(found, key=_WORST_LAST.index, default="unknown")


def _of_logs(before: Consumption | None, now: Consumption, sent: int, gone: int) -> Consumed:
    """Return "consumed" if each log is read that may have one of the letters; if none was sent now, each of
    which something waited. One that is not shown any more is not read."""
    was, logs = (before and before.logs) or {}, now.logs or {}
    if sum(one.end for one in logs.values()) - sum(one.end for one in was.values()) < sent - gone:
        return "waiting"  # RocketMQ builds its queues some milliseconds after it has answered
    for name, one in logs.items():
        if one.waiting and not (sent and name in was and one.end <= was[name].end):
            return "waiting"
    return "consumed" if was.keys() <= logs.keys() else "waiting"


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
    """Return how many were acknowledged since `before`; None after a counter has fallen, as that of a cluster
    does by what a node that is gone has counted."""
    start = before.acknowledged if before else 0
    if now.acknowledged is None or start is None or now.acknowledged < start:
        return None
    return now.acknowledged - start


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
