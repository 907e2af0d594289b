"""What lies in which partition now, and from where to read it: the plan of one reading.

A checkpoint names cluster, topic id and partition: a topic that was deleted and made again has the same name
and begins at 0, and only its id differs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from dlq.connectors.base import Checkpoint, Gap
from dlq.connectors.kafka.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.description import is_pattern
from dlq.core.errors import NotFound


class OffsetRange(NamedTuple):
    """What a reading takes of one partition: [start, end). `key` names its checkpoint."""

    place: Place
    start: int
    end: int
    key: str


@dataclass
class Plan:
    """All ranges of a reading, and what is to be said about them."""

    ranges: list[OffsetRange] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    @property
    def offsets(self) -> int:
        """How many there are; not each has a letter."""
        return sum(one.end - one.start for one in self.ranges)


def topics_of(cluster: Cluster, wanted: str) -> list[Topic]:
    """The topic of a source, or all that fit its pattern. Raises NotFound for a name that is not there."""
    if not is_pattern(wanted):
        return [cluster.topic(wanted)]
    names = [name for name in cluster.names() if fnmatchcase(name, wanted)]
    if not names:
        raise NotFound(f"no topic on {cluster.name} fits {wanted}, or the user may see none that does")
    return list(cluster.topics(names).values())


def checkpoint_key(cluster: str, topic: Topic, partition: int) -> str:
    """E.g. orders-dlt@cluster/4nLoQreZSe6jKF9WXt9QFw:0."""
    return f"{topic.name}@{cluster}/{topic.id}:{partition}"


def plan_of(cluster: str, topics: Iterable[Topic], logs: Sequence[Log], resume: Checkpoint) -> Plan:
    """Where to start in each partition: at the checkpoint, or at what the broker still has."""
    plan = Plan()
    known = {topic.name: topic for topic in topics}
    for topic in known.values():
        _note_former(plan, cluster, topic, resume)
    for log in logs:
        key = checkpoint_key(cluster, known[log.place.topic], log.place.partition)
        key, start = _start(plan, log, key, resume)
        plan.ranges.append(OffsetRange(log.place, start, max(start, log.stable), key))
        if log.end > log.stable:
            plan.complete = False
            plan.notes.append(
                f"{log.place}: an open transaction holds back what lies at offsets {log.stable} to "
                f"{log.end - 1}, {log.end - log.stable} at most; pull again when it has ended"
            )
    return plan


def _start(plan: Plan, log: Log, key: str, resume: Checkpoint) -> tuple[str, int]:
    """The checkpoint's key, and where to begin. A log that was cut at its end has a key of its own,
    `...~1`."""
    generation = 0
    while f"{key}~{generation + 1}" in resume:
        generation += 1
    latest = f"{key}~{generation}" if generation else key
    reached = resume.get(latest, 0)
    if reached > log.end:
        plan.complete = False
        plan.gaps.append(Gap(str(log.place), reached, None, latest))
        plan.notes.append(
            f"{log.place} ends at {log.end} and was read to {reached}: its end was cut off (an unclean "
            "leader election, a lost disk). It is read from its start; what the archive has is known"
        )
        return f"{key}~{generation + 1}", log.start
    if reached < log.start:
        if latest in resume:
            plan.gaps.append(Gap(str(log.place), reached, log.start, latest))
        else:
            plan.notes.append(
                f"{log.place}: offsets before {log.start} were gone before this pull (retention)"
            )
    return latest, max(reached, log.start)


def _note_former(plan: Plan, cluster: str, topic: Topic, resume: Checkpoint) -> None:
    """Nobody knows what a deleted topic held beyond its checkpoint, so this reading is not all there was."""
    mine = f"{topic.name}@{cluster}/{topic.id}:"
    same_name = [key for key in resume if key.startswith(f"{topic.name}@{cluster}/")]
    if same_name and not any(key.startswith(mine) for key in same_name):
        plan.complete = False
        reached = {key.rpartition(":")[2].partition("~")[0]: resume[key] for key in same_name}
        plan.gaps += [
            Gap(str(Place(topic.name, int(partition))), offset, None, f"{topic.name}@{cluster}")
            for partition, offset in reached.items()
        ]
        told = ", ".join(f"{partition} at {offset}" for partition, offset in sorted(reached.items()))
        plan.notes.append(
            f"{topic.name} was deleted and made again: it has another topic id. It is read from its start; "
            f"letters of the old one behind what was pulled (partition {told}) are lost"
        )


def facts_of(topics: Sequence[Topic], logs: Sequence[Log]) -> Mapping[str, object]:
    """What analysis may know of the source."""
    return {
        "topics": [
            {"topic": topic.name, "topic_id": topic.id, "partitions": topic.partitions} for topic in topics
        ],
        "partitions": [
            {"place": str(log.place), "start": log.start, "stable": log.stable, "end": log.end}
            for log in logs
        ],
    }
