"""Apache RocketMQ 4.x and 5.x: dead letters of consumer groups, and half messages of transactions."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlq.connectors import base
from dlq.connectors.deadline import with_deadline, with_shared_deadline
from dlq.connectors.newer import NewerProof, NewerSearch
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.look import coverage, doctor
from dlq.connectors.rocketmq.look.consumers import checked_to, consumption, is_broadcast
from dlq.connectors.rocketmq.look.limits import NONE, Attributes
from dlq.connectors.rocketmq.look.newer import find_newer
from dlq.connectors.rocketmq.look.routes import route_to, why_unread
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.connectors.rocketmq.prove.search import find
from dlq.connectors.rocketmq.prove.start_offsets import bounds
from dlq.connectors.rocketmq.read import snapshot
from dlq.connectors.rocketmq.read.outcomes import Outcomes, untold_key
from dlq.connectors.rocketmq.read.private import RocketPrivate
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.topics import RocketReading
from dlq.connectors.rocketmq.republish import RESUME, preview, target_of, topic_of
from dlq.connectors.rocketmq.send import RocketPublisher
from dlq.core.errors import AccessDenied, BrokerError, NotFound
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, DISCARDED, HALF, OP_TOPIC
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Source


class RocketConnector(base.Connector):
    """One RocketMQ cluster."""

    window = 4000

    def __init__(self, broker: RocketBroker) -> None:
        """Connects lazily. Raises ConfigError."""
        self.cluster = Cluster(broker)
        self._unreadable: dict[str, BrokerError] = {}
        self._attributes: dict[str, Attributes] = {}
        self._silent_until = 0.0

    @with_deadline
    def inspect(self, source: Source) -> base.Inspection:
        """Look without changing anything."""
        found, facts, notes = self._look(source)
        unread = self._unread(source, facts, {})
        seen = doctor.inspect(self.cluster, source.group, found, facts, [*notes, *unread])
        left_out = "; ".join(one.removeprefix("not read: ") for one in unread)
        return replace(seen, leaves_out=dict.fromkeys(("copy", "drain"), left_out)) if unread else seen

    @with_deadline
    def gauge(self, source: Source) -> base.Gauge:
        """See `Connector`. Nobody consumes dead letters; they leave when they are too old."""
        cluster = self.cluster
        cluster.leave_out_silent()
        unread = dict(cluster.silent)
        if source.transactions:
            return base.Gauge(sum(_half_messages(cluster)), note=_in_words(unread))
        topics = snapshot.dead_letter_topics(cluster, str(source.group))
        found = [*_all_that_may_be_read(cluster, topics, unread)]
        if not unread:
            snapshot.check_group(cluster, str(source.group), found)
        first = [snapshot.message_at(cluster, offsets, offsets.lowest) for offsets in found if _size(offsets)]
        oldest = min((one.stored_at * 1000 for one in first if one), default=None)
        return base.Gauge(sum(map(_size, found)), oldest=oldest, note=_in_words(unread))

    @with_deadline
    def discover(self) -> list[base.DeadLetterPlace]:
        """Return the dead letters of all groups, and half messages with what became of them; what the user
        may not read without a depth. Raises AccessDenied where that is all of it."""
        cluster = self.cluster
        cluster.masters(refresh=True)
        groups = [_dead_letters(cluster, topic) for topic in snapshot.dead_letter_topics(cluster, "*")]
        places = [*groups, _transactions(cluster)]
        if all(place.depth is None for place in places):
            raise AccessDenied(places[-1].because)
        return places

    @with_deadline
    def coverage(self) -> list[base.Fate]:
        """Tell where the dead go, by the settings of groups, topics and brokers (`coverage`)."""
        return coverage.predict(coverage.fetch(self.cluster))

    @with_deadline
    def read(self, request: base.ReadRequest) -> RocketReading:
        """Start a reading; it changes nothing on the broker, in either mode."""
        cluster, source = self.cluster, request.source
        found, facts, notes = self._look(source)
        resume = request.resume if request.mode == "drain" else base.NO_CHECKPOINT
        wanted = source.topic or (DISCARDED if source.transactions else f"{DEAD_LETTERS}{source.group}")
        found += snapshot.passed_over(cluster, wanted, found, resume, self._unreadable)
        plan = snapshot.plan_of(found, resume, snapshot.begun_anew(cluster, found, resume))
        unread = self._unread(source, facts, resume)
        plan.complete = plan.complete and not unread
        plan.notes += [*notes, *unread]
        known = {
            node: {**told, "index": False} if untold_key(node) in resume else dict(told)
            for node, told in facts.items()
        }
        queues = [{**offsets._asdict(), "place": str(offsets.place)} for offsets in found]
        topology: dict[str, Any] = {"brokers": known, "queues": queues}
        halves = {
            one.place.place.node: (request.resume.get(one.key, 0), one.start)
            for one in plan.ranges
            if one.place.place.topic == HALF
        }
        outcomes = Outcomes(cluster, halves) if source.transactions else None
        return RocketReading(cluster, request, plan, topology, outcomes)

    def target_of(self, record: Record, to: str) -> base.Target | None:
        """origin (its topic), group (the failed group alone), resume (a half message's check), topic:NAME."""
        return target_of(record, to)

    @with_shared_deadline
    def preview(self, letter: base.Outgoing) -> base.SendPreview:
        """Return what sending it would strip, warn of, or fail on."""
        return preview(letter, self._attributes_of(letter.target))

    def _attributes_of(self, target: base.Target) -> Attributes:
        """Asked once of each topic. A cluster that does not answer is asked again after a while."""
        topic = topic_of(target)
        if target.kind == RESUME:
            return NONE
        if topic not in self._attributes and time.monotonic() >= self._silent_until:
            try:
                self._attributes[topic] = self.cluster.attributes(topic)
            except BrokerError:
                self._silent_until = time.monotonic() + patience.RESTART
        return self._attributes.get(topic)

    @with_deadline
    def consumers(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[str]]:
        """Return the groups that subscribe to a topic, as its brokers know them. A group is its own
        consumers, or nobody is, where it does not read its retry topic."""
        found = {target: _consumers_of(self.cluster, target) for target in targets}
        return {target: groups for target, groups in found.items() if groups is not None}

    @with_deadline
    def missing_targets(self, targets: Sequence[base.Target]) -> Mapping[base.Target, str]:
        """Topics that no broker has for writing, and groups that would not read their retry topic."""
        asked = [target for target in targets if target.kind in ("topic", "group")]
        closed = {target: route_to(self.cluster, target, topic_of(target)).closed for target in asked}
        return {target: why for target, why in closed.items() if why is not None}

    @with_deadline
    def limits(self, targets: Sequence[base.Target]) -> Mapping[base.Target, base.Limits]:
        """Groups that consume in broadcast mode."""
        return {
            target: base.Limits(
                temporary=f"{target} consumes in broadcast mode, so nobody reads its retry topic"
            )
            for target in targets
            if target.kind == "group" and is_broadcast(self.cluster, target.name)
        }

    @with_deadline
    def consumption(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[base.Consumption]]:
        """Return the groups that read a target, by the offsets that they have committed."""
        found = {target: consumption(self.cluster, target) for target in targets}
        return {target: groups for target, groups in found.items() if groups}

    @with_deadline
    def newer(self, search: NewerSearch) -> NewerProof:
        """Look for newer messages by the indexes of keys."""
        return find_newer(self.cluster, search)

    def publisher(self, request: base.SendRequest) -> RocketPublisher:
        """Open the way in. RocketMQ needs no witness: what was sent stays, and is found by its key."""
        return RocketPublisher(self.cluster, request.window, request.unsent_seconds)

    @with_deadline
    def bounds(self, targets: Iterable[base.Target]) -> base.Evidence:
        """Return where the queues that may be written to end, and what their brokers tell of themselves."""
        return bounds(self.cluster, targets)

    @with_deadline
    def find(self, search: base.Search) -> base.Proof:
        """Look through what came to the targets' queues since."""
        return find(self.cluster, search)

    def private(self, name: str) -> base.Private:
        """Return a topic, and a group of the same name."""
        return RocketPrivate(self.cluster, name, self.read)

    def close(self) -> None:
        """Let go of all connections."""
        self.cluster.close()

    def _look(
        self, source: Source
    ) -> tuple[list[snapshot.QueueOffsets], Mapping[str, Mapping[str, object]], list[str]]:
        """Return what there is to read of a source, what its brokers are, and what an empty answer means."""
        cluster, self._unreadable = self.cluster, {}
        cluster.leave_out_silent()
        facts = doctor.broker_facts(cluster)
        if source.transactions:
            notes = [*doctor.without_index(facts), *doctor.late_outcomes(facts)]
            facts = {node: {**told, "checked_to": checked_to(cluster, node)} for node, told in facts.items()}
            return _transaction_offsets(cluster, facts), facts, notes
        topics = [source.topic] if source.topic else snapshot.dead_letter_topics(cluster, str(source.group))
        found = [*_all_that_may_be_read(cluster, topics, self._unreadable)]
        if self._unreadable or source.topic:
            return found, facts, []
        return found, facts, snapshot.check_group(cluster, str(source.group), found)

    def _unread(
        self, source: Source, facts: Mapping[str, Mapping[str, object]], resume: base.Checkpoint
    ) -> list[str]:
        """Return what may be there and is not read, in words."""
        closed = [f"not read: {topic}: {why}" for topic, why in self._unreadable.items()]
        halves = doctor.unread_halves(facts) if source.transactions else ()
        return [*snapshot.unread_nodes(self.cluster, resume), *closed, *halves]


def _all_that_may_be_read(
    cluster: Cluster, topics: Sequence[str], unreadable: dict[str, BrokerError]
) -> Iterator[snapshot.QueueOffsets]:
    """Yield what the queues of topics hold; topics that may not be read are added to `unreadable`. Raises the
    first reason where no other is left."""
    for topic in topics:
        try:
            yield from [*snapshot.offsets_of_topic(cluster, topic)]
        except (AccessDenied, NotFound) as error:
            unreadable[topic] = error
    closed = [unreadable[topic] for topic in topics if topic in unreadable]
    if topics and len(closed) == len(topics):
        raise closed[0]


def _in_words(unread: Mapping[str, BrokerError]) -> str:
    return "; ".join(f"not read: {name}: {why}" for name, why in unread.items())


def _dead_letters(cluster: Cluster, topic: str) -> base.DeadLetterPlace:
    group = topic.removeprefix(DEAD_LETTERS)
    place = base.DeadLetterPlace(topic, {"group": group}, "topic", f"dead letters of the group {group}")
    try:
        return place._replace(depth=sum(map(_size, snapshot.offsets_of_topic(cluster, topic))))
    except AccessDenied as error:
        return place._replace(because=f"{place.because}; not read: {error}")


def _transactions(cluster: Cluster) -> base.DeadLetterPlace:
    place = base.DeadLetterPlace(HALF, {"transactions": True}, "transactions", "half messages")
    try:
        pending, discarded = _half_messages(cluster)
    except AccessDenied as error:
        return place._replace(because=f"half messages; not read: {error}")
    because = f"half messages, and {discarded:,} that the broker gave up"
    return place._replace(because=because, depth=pending + discarded)


def _half_messages(cluster: Cluster) -> tuple[int, int]:
    """Return those that are there, and those that the broker gave up."""
    pending = sum(
        _size(snapshot.own_offsets(cluster, MessageQueue(HALF, node, 0))) for node in cluster.masters()
    )
    return pending, sum(map(_size, snapshot.offsets_of_topic(cluster, DISCARDED)))


def _size(offsets: snapshot.QueueOffsets) -> int:
    return offsets.highest - offsets.lowest


def _consumers_of(cluster: Cluster, target: base.Target) -> list[str] | None:
    if target.kind == "group":
        return [] if why_unread(cluster, target.name) else [f"group {target.name}"]
    groups = cluster.groups_of(target.name) if target.kind == "topic" else None
    return [f"group {group}" for group in sorted(groups)] if groups else None


def _transaction_offsets(
    cluster: Cluster, facts: Mapping[str, Mapping[str, object]]
) -> list[snapshot.QueueOffsets]:
    """Return the half topic first, then what ended: an op record still being gathered is waited for."""
    halves = [snapshot.own_offsets(cluster, MessageQueue(HALF, node, 0)) for node in cluster.masters()]
    if any(half.highest > half.lowest for half in halves):
        longest = max(map(doctor.gathered_ms, facts.values()), default=0)
        time.sleep(min(longest, doctor.LONGEST_WAIT_MS) / 1000 + patience.FETCH)
    ended = [snapshot.own_offsets(cluster, MessageQueue(OP_TOPIC, node, 0)) for node in cluster.masters()]
    return [*halves, *ended, *snapshot.offsets_of_topic(cluster, DISCARDED)]
