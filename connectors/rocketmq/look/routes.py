"""Where a message for a topic may be put, and whether anybody would read it there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlq.connectors.base import Target
from dlq.connectors.rocketmq.link.cluster import Cluster, Queues
from dlq.core.errors import Unreachable
from dlq.core.headers.rocketmq_topics import RETRY

WritableQueue = tuple[str, int]
"""(broker name, queue)."""


@dataclass
class Route:
    """Writable queues, as Java's clients count them; `closed` says why none may be used."""

    places: Sequence[WritableQueue] = ()
    closed: str | None = None
    _near: dict[str | None, Sequence[WritableQueue]] = field(default_factory=dict)

    def queues_near(self, node: str | None) -> Sequence[WritableQueue]:
        """Return those on the broker that a letter comes from, so that this broker alone can say whether the
        letter was sent; all where it has none."""
        if node not in self._near:
            self._near[node] = [place for place in self.places if place[0] == node] or self.places
        return self._near[node]


def route_to(cluster: Cluster, target: Target, topic: str) -> Route:
    """Return the route to `topic`, which stands for `target`. Raises BrokerError, also where one that has the
    topic cannot be asked."""
    found = _writable(cluster, topic)
    places = _sendable_queues(found)
    if places:
        return Route(places, why_unread(cluster, target.name) if target.kind == "group" else None)
    if away := sorted(cluster.route(topic).keys() - cluster.masters().keys()):
        raise Unreachable(f"no master of {', '.join(away)} is registered, where {topic} is")
    unread = f"no queue of {topic} may be written and read (updateTopic -p 6 -r … -w …)"
    return Route(closed=unread if found else f"no broker has a writable topic {topic}")


def writable_queues(cluster: Cluster, topic: str) -> list[WritableQueue]:
    """Return those of `topic` whose brokers have a master now, by the numbers that the brokers store."""
    return [(node, queue) for node, queues in _writable(cluster, topic) for queue in range(queues.writable)]


def _sendable_queues(found: list[tuple[str, Queues]]) -> list[WritableQueue]:
    """Return those that consumers read, by the numbers that are sent to, in the order in which Java's clients
    count them: those of a static topic run over all brokers
    (MQClientInstance.topicRouteData2EndpointsForStaticTopic)."""
    places = [(node, queue) for node, queues in found for queue in queues.to_write]
    is_static = any(queues.hosted is not None for _, queues in found)
    return sorted(places, key=lambda place: place[1]) if is_static else places


def _writable(cluster: Cluster, topic: str) -> list[tuple[str, Queues]]:
    masters = cluster.masters()
    return [(node, q) for node, q in cluster.route(topic).items() if node in masters and q.permission & 2]


def why_unread(cluster: Cluster, group: str) -> str | None:
    """Return why a message in the group's retry topic would lie there unread; None where somebody reads it,
    or nobody tells.

    Push consumers subscribe to that topic and commit offsets of it; POP and gRPC consumers have others. A
    group that has read nothing here may be either, and the message waits for its first consumer.
    """
    topic = f"{RETRY}{group}"
    readers = cluster.groups_of(topic)
    if readers is None or group in readers or not cluster.topics_of(group):
        return None
    return (
        f"{group} reads other topics and has never read {topic}, as groups do that consume in order, or by "
        "POP or gRPC; use --to origin"
    )
