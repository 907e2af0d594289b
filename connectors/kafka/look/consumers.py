"""Who reads a topic, and how far they are: by the offsets that groups have committed, and their members."""

from collections.abc import Sequence

from dlq.connectors.base import Consumption, Reached, consumption_of
from dlq.connectors.kafka.look.cluster import Cluster, Log, Topic

_INTERVAL = 5.0
"""Seconds between two commits of a consumer where nothing else is set (auto.commit.interval.ms)."""


def readers(cluster: Cluster, topic: Topic) -> list[str] | None:
    """Return every group that has committed an offset of the topic, or reads it now; None where not all can
    be seen. Share groups are named, too: nobody can be asked what they read."""
    if not cluster.may_see_groups:
        return None
    groups = cluster.groups()
    committed, members = cluster.committed_offsets(groups, topic), cluster.members(groups)
    found = [group for group in groups if group in committed or topic.name in members.get(group, {})]
    others = [
        f"perhaps group {group} (what share groups read is not told)" for group in cluster.other_groups()
    ]
    return [*(f"group {group}" for group in found), *others]


def consumption(cluster: Cluster, topic: Topic) -> list[Consumption]:
    """Return each group that has committed an offset of the topic."""
    committed = cluster.committed_offsets(cluster.groups(), topic)
    members = cluster.members(sorted(committed))
    logs = cluster.logs([topic])
    return [
        _of_group(group, offsets, logs, members.get(group, {}).get(topic.name, 0))
        for group, offsets in committed.items()
    ]


def _of_group(group: str, offsets: dict[int, int], logs: Sequence[Log], members: int) -> Consumption:
    """Return how far a group has come; a partition of which it committed nothing is all unread."""
    reached = {
        str(log.place): Reached(min(offsets.get(log.place.partition, 0), log.end), log.end, log.start)
        for log in logs
    }
    return consumption_of(f"group {group}", reached, members, _INTERVAL)


def depths_of(topics: Sequence[Topic], cluster: Cluster) -> dict[str, int]:
    """Topic -> how many letters it holds at most."""
    depths = {topic.name: 0 for topic in topics}
    for log in cluster.logs(topics):
        depths[log.place.topic] += log.stable - log.start
    return depths
