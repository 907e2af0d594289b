"""Apache Kafka: topics of dead letters, whoever writes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from dlq.connectors.base import (
    NO_CHECKPOINT,
    UNSENT_SECONDS,
    Checkpoint,
    Consumption,
    DeadLetterPlace,
    Gauge,
    Inspection,
    Limits,
    Outgoing,
    Presence,
    ReadRequest,
    SendPreview,
    Target,
)
from dlq.connectors.kafka.cluster import Cluster, Log, Topic
from dlq.connectors.kafka.consumption import consumption, readers, sized
from dlq.connectors.kafka.description import KafkaBroker, KafkaSource
from dlq.connectors.kafka.find import bounds, find
from dlq.connectors.kafka.inspection import inspect
from dlq.connectors.kafka.pointers import Pointers
from dlq.connectors.kafka.publisher import KafkaPublisher
from dlq.connectors.kafka.reading import KafkaReading
from dlq.connectors.kafka.republishing import preview, retry_topics, target_of
from dlq.connectors.kafka.snapshot import facts_of, plan_of, topics_of
from dlq.core.clock import now
from dlq.core.failure_headers import Keep
from dlq.core.record import Record
from dlq.core.settings import Source

_LOOKS_DEAD = re.compile(
    r"(?i)(?:^|[._-])(dlq|dlt|dead[._-]?letters?|dead[._-]?letter[._-]?queue|dlqueue)(?:$|[._-])|^error\."
)
_TAKES_SHARED = "errors.deadletterqueue.group.enable"


class KafkaConnector:
    """One Kafka cluster."""

    window = 4000

    def __init__(self, broker: KafkaBroker) -> None:
        """Connects lazily. Raises ConfigError."""
        self._cluster = Cluster(broker)
        self._compacted: set[str] = set()
        self._retries: Mapping[str, Sequence[str]] = {}
        self._obstacles: list[str] = []

    def inspect(self, source: Source) -> Inspection:
        """Look without changing anything."""
        topics, logs = self._look(source)
        return inspect(self._cluster, topics, logs, plan_of(self._cluster.id, topics, logs, {}).notes)

    def gauge(self, source: Source) -> Gauge:
        """See `Connector`. Nobody consumes dead letters; they leave when they are too old."""
        _, logs = self._look(source)
        oldest = self._cluster.oldest([log for log in logs if log.stable > log.start])
        depth = sum(log.stable - log.start for log in logs)
        return Gauge(depth, oldest=min((at * 1000 for at in oldest.values()), default=None))

    def discover(self) -> list[DeadLetterPlace]:
        """Topics that are named so, and those that take dead letters of share groups."""
        cluster = self._cluster
        because: dict[str, str] = {}
        for name in cluster.names():
            if (cluster.configuration(name) or {}).get(_TAKES_SHARED) == "true":
                because[name] = "it takes dead letters of share groups"
            elif _LOOKS_DEAD.search(name):
                because[name] = "its name says so"
        depths = sized(list(cluster.topics(because).values()), cluster)
        return [
            DeadLetterPlace(name, {"topic": name}, "topic", because[name], depth)
            for name, depth in depths.items()
        ]

    def read(self, request: ReadRequest) -> KafkaReading:
        """Start a reading; it changes nothing on the broker, in either mode."""
        source, cluster = cast(KafkaSource, request.source), self._cluster
        topics, logs = self._look(source)
        resume = request.resume if request.mode == "drain" else NO_CHECKPOINT
        plan = plan_of(cluster.id, topics, logs, resume)
        pointers = Pointers(cluster, request.resume, now() // 1000) if source.resolve else None
        ids = {topic.name: topic.id for topic in topics}
        return KafkaReading(cluster, request, plan, facts_of(topics, logs), ids, pointers)

    def target_of(self, record: Record, to: str) -> Target | None:
        """origin (its topic), or topic:NAME, such as one of Spring's retry topics."""
        return target_of(record, to)

    def preview(
        self, record: Record, target: Target, provenance: Mapping[str, str], keep_headers: Keep
    ) -> SendPreview:
        """What sending it would strip, warn of, or fail on."""
        del provenance
        retries = self._retries.get(target.name, ())
        return preview(record, target, keep_headers, target.name in self._compacted, retries)

    def consumers(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
        """Every group that has read the topic, where the user may see all groups."""
        known = self._known(targets)
        found = {target: readers(self._cluster, topic) for target, topic in known.items()}
        return {target: groups for target, groups in found.items() if groups is not None}

    def missing(self, targets: Sequence[Target]) -> Mapping[Target, str]:
        """Topics that are not there: none is ever made. What `preview` tells of a topic is learned here."""
        known = self._known(targets)
        self._retries = retry_topics(self._cluster.names())
        for topic in known.values():
            if "compact" in (self._cluster.configuration(topic.name) or {}).get("cleanup.policy", ""):
                self._compacted.add(topic.name)
        return {target: f"there is no topic {target.name}" for target in targets if target not in known}

    def limits(self, targets: Sequence[Target]) -> Mapping[Target, Limits]:
        """Nothing is known."""
        del targets
        return {}

    def consumption(self, targets: Sequence[Target]) -> Mapping[Target, Sequence[Consumption]]:
        """The groups that read a target, by the offsets that they have committed."""
        known = self._known(targets)
        found = {target: consumption(self._cluster, topic) for target, topic in known.items()}
        return {target: groups for target, groups in found.items() if groups}

    def publisher(
        self, plan: str, window: int, witness: bool = False, unsent_seconds: float = UNSENT_SECONDS
    ) -> KafkaPublisher:
        """Open the way in. Kafka needs no witness: what was sent stays, and is found by its replay id."""
        del plan, witness
        return KafkaPublisher(self._cluster, window, unsent_seconds)

    def bounds(self, targets: Iterable[Target]) -> Checkpoint:
        """Where the topics end before anything is sent."""
        return bounds(self._cluster, {target.name for target in targets})

    def find(
        self,
        plan: str,
        outgoing: Sequence[Outgoing],
        since: int,
        last: int | None = None,
        before: Checkpoint = NO_CHECKPOINT,
    ) -> Mapping[int, Presence]:
        """Look through what was stored since."""
        del plan, last
        self._obstacles = []
        return find(self._cluster, outgoing, since, before, self._obstacles)

    def obstacles(self, witness: bool, plan: str = "", since: int = 0) -> list[str]:
        """See `Connector.obstacles`: what the last `find` met with."""
        del witness, plan, since
        return self._obstacles

    def forget(self, plan: str, witness: bool = False) -> None:
        """A publisher leaves nothing behind but its records."""

    def close(self) -> None:
        """The library lets go of its connections by itself."""

    def _look(self, source: Source) -> tuple[list[Topic], list[Log]]:
        topics = topics_of(self._cluster, str(source.topic))
        return topics, self._cluster.logs(topics)

    def _known(self, targets: Sequence[Target]) -> dict[Target, Topic]:
        topics = self._cluster.topics(target.name for target in targets if target.kind == "topic")
        return {target: topics[target.name] for target in targets if target.name in topics}
