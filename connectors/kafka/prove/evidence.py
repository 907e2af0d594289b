"""Where the partitions of a topic ended before a plan's first letter went there. In the plan's file that is
an offset, and the epoch of its leader, under the key of a checkpoint."""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.base import Evidence
from dlq.connectors.kafka.look.cluster import Topic
from dlq.connectors.kafka.read.snapshot import EPOCH, checkpoint_key
from dlq.connectors.proving import why_unknown

_NUMBER = "#partitions"
"""In the place of a partition: how many there were."""


class End(NamedTuple):
    """Where a partition ended, and in which leader's epoch (-1: nobody told)."""

    offset: int = 0
    epoch: int = -1


class TopicEnds(NamedTuple):
    """The ends of a topic's partitions, as far as they were told, and how many there were."""

    ends: Mapping[int, End]
    partitions: int
    doubt: str = ""
    """Why they may be of another topic than the one that is there now."""

    def end_of(self, partition: int) -> End:
        """Return the end of a partition. What a later apply has noted of one that was not there at the first
        says nothing of what went there between: that began at offset 0, with the leader whose epoch is 0."""
        return End(0, 0) if partition >= self.partitions else self.ends.get(partition, End())


def write(cluster: str, topic: Topic, ends: Mapping[int, End]) -> Evidence:
    """Return the ends as they are kept."""
    found = {checkpoint_key(cluster, topic, _NUMBER): topic.partitions}
    for partition, end in ends.items():
        key = checkpoint_key(cluster, topic, partition)
        found |= {key: end.offset, f"{key}{EPOCH}": end.epoch}
    return found


def read(evidence: Evidence, cluster: str, topic: Topic) -> TopicEnds:
    """Return the ends that were kept. Old plans have neither epochs nor numbers of partitions."""
    keys = {number: checkpoint_key(cluster, topic, number) for number in range(topic.partitions)}
    there = {number: key for number, key in keys.items() if key in evidence}
    ends = {number: End(evidence[key], evidence.get(f"{key}{EPOCH}", -1)) for number, key in there.items()}
    partitions = evidence.get(checkpoint_key(cluster, topic, _NUMBER), topic.partitions)
    return TopicEnds(ends, partitions, _find_doubt(evidence, cluster, topic))


def _find_doubt(evidence: Evidence, cluster: str, topic: Topic) -> str:
    starts = f"{topic.name}@", f"{topic.name}@{cluster}/", checkpoint_key(cluster, topic, "")
    same_name, here, mine = ({key for key in evidence if key.startswith(start)} for start in starts)
    if not same_name:
        return why_unknown(topic.name)
    if here != same_name:
        return f"another cluster than {cluster} was sent to, under the same name"
    return f"{topic.name} was deleted and made again since" if mine != here else ""
