"""What lies in which partition now, and from where to read it: the plan of one reading.

A checkpoint names cluster, topic id and partition: a topic that was deleted and made again has the same name
and begins at 0, and only its id differs. A log that was cut and has grown again has all of that alike, and
another leader's epoch where it was cut.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from dlq.connectors.base import Checkpoint, Gap
from dlq.connectors.kafka.look.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.plugin.description import is_pattern
from dlq.connectors.log import Plan, Words, find_generation
from dlq.core.errors import AccessDenied, BrokerError, NotFound
from dlq.core.text import for_terminal

EPOCH = "#epoch"
"""Behind a checkpoint's key: the leader's epoch in which the last record of the partition was written."""
_ABSENT = "#absent"
"""In the place of a topic's id and partition: how far it had been read when its absence was told."""

_WORDS = Words(
    begun_anew="{place} ends at {end} and was read to {reached}: its end was cut off before that (an unclean "
    "leader election, a lost disk). It is read from its start; what the archive has is known",
    gone="{place}: offsets before {first} were gone before this pull (retention)",
)


def _topics_of(cluster: Cluster, wanted: str) -> list[Topic]:
    """Return the topic of a source, or all that fit its pattern. Raises NotFound for an absent name."""
    if not is_pattern(wanted):
        return [cluster.topic(wanted)]
    names = [name for name in cluster.names() if fnmatchcase(name, wanted)]
    if not names:
        raise NotFound(f"no topic on {cluster.name} fits {wanted}, or the user may see none that does")
    return list(cluster.topics(names).values())


def unread_note(why: BrokerError) -> str:
    """Return what is left out, and why: the reason begins with its name."""
    return f"not read: {for_terminal(str(why))}"


def look(cluster: Cluster, wanted: str) -> tuple[list[Topic], list[Log], dict[str, BrokerError]]:
    """Return the topics of a source, what their partitions hold, and what cannot be read of them, and why.
    Raises the first reason where that is all."""
    topics = _topics_of(cluster, wanted)
    unread: dict[str, BrokerError] = {
        topic.name: AccessDenied(f"{topic.name}: the user lacks the right to read it (READ)")
        for topic in topics
        if not topic.is_readable
    }
    readable = [topic for topic in topics if topic.is_readable]
    logs, untold = cluster.logs_and_untold(readable)
    unread |= {str(place): why for place, why in untold.items()}
    if not logs and unread:
        raise next(iter(unread.values()))
    return readable, logs, unread


def checkpoint_key(cluster: str, topic: Topic, partition: int | str) -> str:
    """E.g. orders-dlt@cluster/4nLoQreZSe6jKF9WXt9QFw:0."""
    return f"{topic.name}@{cluster}/{topic.id}:{partition}"


def cut_logs(
    cluster: str,
    topics: Iterable[Topic],
    logs: Sequence[Log],
    resume: Checkpoint,
    end_of_epoch: Callable[[Place, int], int],
) -> set[Place]:
    """Partitions that were cut off before their checkpoint and have grown past it again: what was written in
    the epoch that it names ends earlier (`wholeness.end_of_epoch`, whose errors come through). A log cannot
    be cut without another leader's epoch, so most need not be asked."""
    known = {topic.name: topic for topic in topics}
    cut = set()
    for log in logs:
        first = checkpoint_key(cluster, known[log.place.topic], log.place.partition)
        _, key = find_generation(first, resume)
        epoch = resume.get(f"{key}{EPOCH}", log.epoch)
        if epoch != log.epoch and max(0, end_of_epoch(log.place, epoch)) < resume.get(key, 0):
            cut.add(log.place)
    return cut


def plan_of(
    cluster: str,
    topics: Iterable[Topic],
    logs: Sequence[Log],
    resume: Checkpoint,
    cut: Collection[Place] = (),
) -> Plan[Place]:
    """Return where to start in each partition: at the checkpoint, or at what the broker still has.

    `cut`: what `cut_logs` says; a partition that ends before its checkpoint was cut, too.
    """
    plan = Plan[Place]()
    known = {topic.name: topic for topic in topics}
    for topic in known.values():
        _note_former(plan, cluster, topic, resume)
    for log in logs:
        key = checkpoint_key(cluster, known[log.place.topic], log.place.partition)
        is_cut = log.place in cut
        bounds = log.start, log.end
        key = plan.add(log.place, str(log.place), key, bounds, resume, _WORDS, end=log.stable, anew=is_cut)
        if log.epoch >= 0:
            plan.marks[f"{key}{EPOCH}"] = log.epoch
        if log.end > log.stable:
            plan.complete = False
            plan.notes.append(
                f"{log.place}: an open transaction holds back what lies at offsets {log.stable} to "
                f"{log.end - 1}, {log.end - log.stable} at most; pull again when it has ended"
            )
    return plan


def _note_former(plan: Plan[Place], cluster: str, topic: Topic, resume: Checkpoint) -> None:
    """Nobody knows what a deleted topic held beyond its checkpoint, so this reading is not all there was."""
    mine = f"{topic.name}@{cluster}/{topic.id}:"
    same_name = {
        key.partition("~")[0]
        for key in resume
        if key.startswith(f"{topic.name}@{cluster}/") and "#" not in key
    }
    if same_name and not any(key.startswith(mine) for key in same_name):
        plan.complete = False
        reached = {key.rpartition(":"): resume[find_generation(key, resume)[1]] for key in sorted(same_name)}
        plan.gaps += [
            Gap(str(Place(topic.name, int(partition))), offset, None, log)
            for (log, _, partition), offset in reached.items()
        ]
        told = ", ".join(f"{partition} at {offset}" for (_, _, partition), offset in reached.items())
        plan.notes.append(
            f"{topic.name} was deleted and made again: it has another topic id. It is read from its start; "
            f"letters of the old one behind what was pulled (partition {told}) are lost"
        )


def note_absent(
    plan: Plan[Place], cluster: Cluster, wanted: str, shown: Collection[str], resume: Checkpoint
) -> None:
    """Note the topics of a pattern that earlier pulls read, and that are not `shown` among its topics now:
    each time one that the user may not see, and once one that is not there. Raises BrokerError."""
    reached = _offsets_read(cluster.id, wanted, resume)
    for name in sorted(reached.keys() - shown):
        why, mark = BrokerError(f"{name} was not there for a moment"), f"{name}@{cluster.id}/{_ABSENT}"
        try:
            cluster.topic(name)
        except NotFound as error:
            if resume.get(mark) == reached[name]:
                continue
            plan.marks[mark], why = reached[name], error
        except AccessDenied as error:
            why = error
        plan.complete = False
        plan.notes.append(f"{unread_note(why)}; an earlier pull read it, and what came since is missing")


def _offsets_read(cluster: str, wanted: str, resume: Checkpoint) -> Mapping[str, int]:
    """Topic that fits `wanted` -> the sum of the offsets to which earlier pulls have read its partitions."""
    reached = Counter[str]()
    for key, offset in resume.items():
        name, _, rest = key.partition("@")
        if rest.startswith(f"{cluster}/") and "#" not in key and fnmatchcase(name, wanted):
            reached[name] += offset
    return reached


def facts_of(topics: Sequence[Topic], logs: Sequence[Log]) -> Mapping[str, object]:
    """Return what analysis may know of the source."""
    return {
        "topics": [
            {"topic": topic.name, "topic_id": topic.id, "partitions": topic.partitions} for topic in topics
        ],
        "partitions": [
            {"place": str(log.place), "start": log.start, "stable": log.stable, "end": log.end}
            for log in logs
        ],
    }
