"""Where the partitions of a topic ended before a plan's first letter went there, and how that stands in the
plan's file: as an offset, and the epoch of its leader, under the key of a checkpoint."""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.base import Evidence
from dlq.connectors.kafka.look.cluster import Topic
from dlq.connectors.kafka.read.snapshot import EPOCH, checkpoint_key

_PARTITIONS = "#partitions"
"""In the place of a partition: how many there were."""


class End(NamedTuple):
    """Where a partition ended, and in which leader's epoch (-1: nobody told)."""

    offset: int = 0
    epoch: int = -1


class TopicEnds(NamedTuple):
    """What is known of a topic from before anything was sent there."""

    ends: Mapping[int, End]
    """Partition -> its end; of some nobody could tell."""
    partitions: int
    doubt: str = ""
    """Why it may be of another topic than the one that is there now."""

    def end_of(self, partition: int) -> End:
        """Return the end of a partition. What a later apply has noted of one that was not there at the first
        says nothing of what went there between: that began at offset 0, with the leader whose epoch is 0."""
        return End(0, 0) if partition >= self.partitions else self.ends.get(partition, End())


def write(cluster: str, topic: Topic, ends: Mapping[int, End]) -> Evidence:
    """Return the evidence of one topic."""
    found = {checkpoint_key(cluster, topic, _PARTITIONS): topic.partitions}
    for partition, end in ends.items():
        key = checkpoint_key(cluster, topic, partition)
        found |= {key: end.offset, f"{key}{EPOCH}": end.epoch}
    return found


def read(evidence: Evidence, cluster: str, topic: Topic) -> TopicEnds:
    """Return what evidence tells of a topic. Old plans kept neither epochs nor numbers of partitions."""
    keys = {number: checkpoint_key(cluster, topic, number) for number in range(topic.partitions)}
    ends = {
        number: End(evidence[key], evidence.get(f"{key}{EPOCH}", -1))
        for number, key in keys.items()
        if key in evidence
    }
    partitions = evidence.get(checkpoint_key(cluster, topic, _PARTITIONS), topic.partitions)
    return TopicEnds(ends, partitions, _find_doubt(evidence, cluster, topic))


def _find_doubt(evidence: Evidence, cluster: str, topic: Topic) -> str:
    same_name, here, mine = (
        {key for key in evidence if key.startswith(start)}
        for start in (f"{topic.name}@", f"{topic.name}@{cluster}/", checkpoint_key(cluster, topic, ""))
    )
    if not same_name:
        return f"nothing says where {topic.name} ended before the first letter was sent"
    if here != same_name:
        return f"another cluster than {cluster} was sent to, under the same name"
    return f"{topic.name} was deleted and made again since" if mine != here else ""
