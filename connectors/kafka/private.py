"""The private topics of a rehearsal: one that the consumer under test reads, and one for what it gives up.

Kafka lets nothing die: the consumer writes its dead letters itself. Both topics have one partition, so that
what is left is the end of it, and keep all, however old a copy's time is.
"""

import time

from confluent_kafka.admin import NewTopic

from dlq.connectors.base import Private, Target
from dlq.connectors.kafka.cluster import Cluster
from dlq.core.errors import AccessDenied, BrokerError

_DENIED = (
    "a rehearsal makes, fills, reads and deletes topics dlq.rehearsal.*; grant Create, Write, Read and Delete"
)
_PAUSE = 0.1
_POINT = (
    'Spring: @KafkaListener(topics = "{0}", groupId = "{0}"); a DeadLetterPublishingRecoverer without a',
    "    resolver of its own writes to {1} (before Spring Kafka 3: give it one)",
    'MassTransit: k.TopicEndpoint<YourMessage>("{0}", "{0}", e => …), which has to produce what fails to {1}',
    'Java: consumer.subscribe(List.of("{0}")), group.id = {0}; send what fails to {1} before you commit',
    'Go: kafka.ReaderConfig{{Topic: "{0}", GroupID: "{0}", StartOffset: kafka.FirstOffset}}; the same',
    "All: auto.offset.reset = earliest, and the headers of a message go along to {1}",
)


def name_places(name: str) -> Private:
    """See `Connector.private`."""
    dead = f"{name}-dlt"
    point = [line.format(name, dead) for line in _POINT]
    return Private(Target("topic", name), {"topic": name}, {"topic": dead}, point)


def make(cluster: Cluster, private: Private) -> None:
    """Create both topics, and wait until they have leaders. Raises BrokerError."""
    names = [private.place["topic"], private.dead["topic"]]
    keep = {"retention.ms": "-1", "cleanup.policy": "delete"}
    topics = [NewTopic(name, 1, -1, config=keep) for name in names]
    try:
        cluster.ask_admin(lambda admin: admin.create_topics(topics, request_timeout=cluster.timeout))
    except AccessDenied as error:
        raise AccessDenied(f"{error}; {_DENIED}") from error
    _wait(cluster, names, there=True)
    cluster.logs([*cluster.topics(names).values()])


def remove(cluster: Cluster, private: Private) -> None:
    """Delete all topics whose names begin so, a framework's retry topics among them; with them go the offsets
    of their groups. Raises BrokerError."""
    names = [name for name in cluster.names() if name.startswith(private.place["topic"])]
    if not names:
        return
    try:
        cluster.ask_admin(lambda admin: admin.delete_topics(names, request_timeout=cluster.timeout))
    except AccessDenied as error:
        raise AccessDenied(f"{error}; {_DENIED}") from error
    _wait(cluster, names, there=False)


def _wait(cluster: Cluster, names: list[str], there: bool) -> None:
    """Until the cluster shows all of these topics, or none."""
    until = time.monotonic() + cluster.timeout
    while len({*names} & {*cluster.names()}) != there * len(names):
        if time.monotonic() > until:
            raise BrokerError(f"{cluster.name}: {', '.join(names)}: the change does not show; run it again")
        time.sleep(_PAUSE)
