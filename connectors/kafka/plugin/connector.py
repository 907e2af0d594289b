"""Apache Kafka: topics of dead letters, whoever writes them."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast

from dlq.connectors import base
from dlq.connectors.deadline import with_deadline, with_shared_deadline
from dlq.connectors.kafka.look import coverage
from dlq.connectors.kafka.look.cluster import Cluster, Topic
from dlq.connectors.kafka.look.consumers import consumption, depths_of, readers
from dlq.connectors.kafka.look.doctor import inspect
from dlq.connectors.kafka.look.newer import find_newer
from dlq.connectors.kafka.plugin.description import KafkaBroker, KafkaSource
from dlq.connectors.kafka.prove.search import bounds, find
from dlq.connectors.kafka.prove.wholeness import end_of_epoch
from dlq.connectors.kafka.read.partitions import KafkaReading
from dlq.connectors.kafka.read.pointers import Pointers
from dlq.connectors.kafka.read.private import KafkaPrivate
from dlq.connectors.kafka.read.snapshot import cut_logs, facts_of, look, note_absent, plan_of, unread_note
from dlq.connectors.kafka.republish import (
    LOOKS_DEAD,
    Told,
    mirrored_clusters,
    preview,
    retry_topics,
    target_of,
)
from dlq.connectors.kafka.send import KafkaPublisher
from dlq.connectors.newer import NewerProof, NewerSearch
from dlq.core.clock import now
from dlq.core.errors import BrokerError
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Source

_TAKES_SHARED = "errors.deadletterqueue.group.enable"


class KafkaConnector(base.Connector):
    """One Kafka cluster."""

    window = 4000

    def __init__(self, broker: KafkaBroker) -> None:
        """Connects lazily. Raises ConfigError."""
        self.cluster = Cluster(broker)
        self._targets: dict[str, Told] = {}
        self._silent_until = 0.0

    @with_deadline
    def inspect(self, source: Source) -> base.Inspection:
        """Look without changing anything."""
        topics, logs, unread = look(self.cluster, str(source.topic))
        notes = plan_of(self.cluster.id, topics, logs, {}).notes
        found = inspect(self.cluster, topics, logs, notes)
        if not unread:
            return found
        left_out = "; ".join(map(str, unread.values()))
        return replace(found, leaves_out=dict.fromkeys(("copy", "drain"), left_out))

    @with_deadline
    def gauge(self, source: Source) -> base.Gauge:
        """See `Connector`. Nobody consumes dead letters; they leave when they are too old."""
        _, logs, unread = look(self.cluster, str(source.topic))
        oldest = self.cluster.oldest([log for log in logs if log.stable > log.start])
        depth = sum(log.stable - log.start for log in logs)
        note = "; ".join(map(unread_note, unread.values()))
        return base.Gauge(depth, oldest=min((at * 1000 for at in oldest.values()), default=None), note=note)

    @with_deadline
    def discover(self) -> list[base.DeadLetterPlace]:
        """Topics that are named so, and those that take dead letters of share groups."""
        cluster = self.cluster
        because: dict[str, str] = {}
        for name in cluster.names():
            if (cluster.configuration(name) or {}).get(_TAKES_SHARED) == "true":
                because[name] = "it takes dead letters of share groups"
            elif LOOKS_DEAD.search(name):
                because[name] = "its name says so"
        depths = depths_of(list(cluster.topics(because).values()), cluster)
        return [
            base.DeadLetterPlace(name, {"topic": name}, "topic", because[name], depth)
            for name, depth in depths.items()
        ]

    @with_deadline
    def coverage(self) -> list[base.Fate]:
        """Tell where the dead go, by the settings of topics and groups (`coverage`)."""
        return coverage.predict(coverage.fetch(self.cluster))

    @with_deadline
    def read(self, request: base.ReadRequest) -> KafkaReading:
        """Start a reading; it changes nothing on the broker, in either mode."""
        source, cluster = cast(KafkaSource, request.source), self.cluster
        topics, logs, unread = look(cluster, str(source.topic))
        resume = request.resume if request.mode == "drain" else base.NO_CHECKPOINT
        cut = cut_logs(cluster.id, topics, logs, resume, partial(end_of_epoch, cluster))
        plan = plan_of(cluster.id, topics, logs, resume, cut)
        plan.complete = plan.complete and not unread
        plan.notes += [unread_note(why) for why in unread.values()]
        note_absent(plan, cluster, str(source.topic), {*unread, *(topic.name for topic in topics)}, resume)
        pointers = Pointers(cluster, request.resume, now() // 1000) if source.resolve else None
        ids = {topic.name: topic.id for topic in topics}
        return KafkaReading(cluster, request, plan, facts_of(topics, logs), ids, pointers)

    def target_of(self, record: Record, to: str) -> base.Target | None:
        """origin (its topic), or topic:NAME, such as one of Spring's retry topics."""
        return target_of(record, to)

    @with_shared_deadline
    def preview(self, letter: base.Outgoing) -> base.SendPreview:
        """Return what sending it would strip, warn of, or fail on."""
        return preview(letter, self._told_of(letter.target.name))

    def _told_of(self, topic: str) -> Told:
        """Return what is known of a topic. A silent cluster is asked again only after a while, so that many
        topics do not take as many times its silence."""
        if topic not in self._targets and time.monotonic() >= self._silent_until:
            try:
                settings = self.cluster.configuration(topic)
                self._targets[topic] = Told(settings, self._retries.get(topic, ()), self._mirrored)
            except BrokerError:
                self._silent_until = time.monotonic() + patience.RESTART
        return self._targets.get(topic, Told())

    @cached_property
    def _names(self) -> Collection[str]:
        return self.cluster.names()

    @cached_property
    def _retries(self) -> Mapping[str, Sequence[str]]:
        return retry_topics(self._names)

    @cached_property
    def _mirrored(self) -> Collection[str]:
        return mirrored_clusters(self._names)

    @with_deadline
    def consumers(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[str]]:
        """Return every group that has read the topic, where the user may see all groups."""
        known = self._find_topics(targets)
        found = {target: readers(self.cluster, topic) for target, topic in known.items()}
        return {target: groups for target, groups in found.items() if groups is not None}

    @with_deadline
    def missing_targets(self, targets: Sequence[base.Target]) -> Mapping[base.Target, str]:
        """Topics that are not there: none is ever made."""
        known = self._find_topics(targets)
        return {target: f"there is no topic {target.name}" for target in targets if target not in known}

    @with_deadline
    def consumption(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[base.Consumption]]:
        """Return the groups that read a target, by the offsets that they have committed."""
        known = self._find_topics(targets)
        found = {target: consumption(self.cluster, topic) for target, topic in known.items()}
        return {target: groups for target, groups in found.items() if groups}

    @with_deadline
    def newer(self, search: NewerSearch) -> NewerProof:
        """Look for newer messages in the partitions that the letters came from."""
        return find_newer(self.cluster, search)

    def publisher(self, request: base.SendRequest) -> KafkaPublisher:
        """Open the way in. Kafka needs no witness: what was sent stays, and is found by its replay id."""
        return KafkaPublisher(self.cluster, request.window, request.unsent_seconds)

    @with_deadline
    def bounds(self, targets: Iterable[base.Target]) -> base.Evidence:
        """Return where the topics end before anything is sent."""
        return bounds(self.cluster, {target.name for target in targets})

    @with_deadline
    def find(self, search: base.Search) -> base.Proof:
        """Look through what was stored since."""
        return find(self.cluster, search)

    def private(self, name: str) -> base.Private:
        """Return two topics: the second is named as Spring names the one for dead letters."""
        return KafkaPrivate(self.cluster, name)

    def _find_topics(self, targets: Sequence[base.Target]) -> dict[base.Target, Topic]:
        topics = self.cluster.topics(target.name for target in targets if target.kind == "topic")
        return {target: topics[target.name] for target in targets if target.name in topics}
