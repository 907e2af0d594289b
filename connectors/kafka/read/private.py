"""The private topics of a rehearsal: one that the consumer under test reads, and one for what it gives up.

Kafka lets nothing die: the consumer writes its dead letters itself. Both topics have one partition, so that
what is left is the end of it, and keep all, however old a copy's time is.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from dlq.connectors.base import Private, Target
from dlq.connectors.kafka.look.cluster import Cluster
from dlq.core.errors import BrokerError, name_rights
from dlq.core.runtime import patience

_DENIED = (
    "a rehearsal makes, fills, reads and deletes topics dlq.rehearsal.*; grant Create, Write, Read and Delete"
)
_POINT = (
    'Spring: @KafkaListener(topics = "{0}", groupId = "{0}"); a DeadLetterPublishingRecoverer without a',
    "    resolver of its own writes to {1} (before Spring Kafka 3: give it one)",
    'MassTransit: k.TopicEndpoint<YourMessage>("{0}", "{0}", e => …), which has to produce what fails to {1}',
    'Java: consumer.subscribe(List.of("{0}")), group.id = {0}; send what fails to {1} before you commit',
    'Go: kafka.ReaderConfig{{Topic: "{0}", GroupID: "{0}", StartOffset: kafka.FirstOffset}}; the same',
    "All: auto.offset.reset = earliest, and the headers of a message go along to {1}",
)


class KafkaPrivate(Private):
    """See `Private`."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        dead = f"{name}-dlt"
        point = [line.format(name, dead) for line in _POINT]
        super().__init__(Target("topic", name), {"topic": name}, {"topic": dead}, point)
        self._cluster, self._names = cluster, [name, dead]

    def make(self) -> None:
        """Create both topics, and wait until they have leaders."""
        cluster, keep = self._cluster, {"retention.ms": "-1", "cleanup.policy": "delete"}
        topics = [NewTopic(name, 1, -1, config=keep) for name in self._names]
        self._ask(lambda admin: admin.create_topics(topics, request_timeout=cluster.timeout))
        self._wait_until(self._names, there=True)
        cluster.logs([*cluster.topics(self._names).values()])

    def remove(self) -> None:
        """Delete all topics whose names begin so, a framework's retry topics among them; with them go the
        offsets of their groups."""
        cluster = self._cluster
        if names := [name for name in cluster.names() if name.startswith(self._names[0])]:
            self._ask(lambda admin: admin.delete_topics(names, request_timeout=cluster.timeout))
            self._wait_until(names, there=False)

    def _ask(self, ask: Callable[[AdminClient], Mapping[Any, Any]]) -> None:
        with name_rights(_DENIED):
            self._cluster.ask_admin(ask)

    def _wait_until(self, names: Sequence[str], there: bool) -> None:
        """Wait until the cluster shows all of these topics, or none."""
        for _ in patience.tries(self._cluster.timeout):
            if len({*names} & {*self._cluster.names()}) == there * len(names):
                return
        raise BrokerError(f"{self._cluster.name}: {', '.join(names)}: a change does not show")
