"""Everything that was stored since some time, for what an index does not tell.

A broker that was killed rebuilds its queues from the commit log when it starts; its index may have holes.
"""

from collections.abc import Collection, Iterable, Iterator

from dlq.connectors.lenient_json import loads
from dlq.connectors.rocketmq.answers import understood
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.message import StoredMessage, decode, parse
from dlq.connectors.rocketmq.queue_scan import Place, PullWalk, Step, queue_walk
from dlq.connectors.rocketmq.records import HALF
from dlq.connectors.rocketmq.remoting import Ask, Code
from dlq.connectors.rocketmq.snapshot import Extent, extents, own_extent
from dlq.core.errors import BrokerError

_MARGIN_MS = 600_000
"""How far a broker's clock may be from ours."""
_MOST = 500_000
"""Messages that are read: ten seconds or so."""
_ROOM = 2**24


def stored_since(
    cluster: Cluster, nodes: Collection[str], topics: Iterable[str], since: int
) -> Iterator[StoredMessage]:
    """The messages of `topics` on `nodes` from a while before `since` (microseconds) on.

    Raises BrokerError where these cannot be all, or are too many: by then some may have been given.
    """
    for node in nodes:
        _check_age(cluster, node, since)
    start = since // 1000 - _MARGIN_MS
    found = [extent for topic in topics for extent in _extents(cluster, topic) if extent.place.node in nodes]
    stretches = [(extent, max(extent.lowest, _offset_at(cluster, extent, start))) for extent in found]
    if sum(extent.highest - first for extent, first in stretches) > _MOST:
        raise BrokerError(f"more than {_MOST} messages were stored since then")
    for extent, first in stretches:
        for step in _steps(cluster, extent, first):
            if step.gaps:
                raise BrokerError(f"{extent.place} has lost messages")
            yield from map(parse, step.messages)


def runtime_facts(cluster: Cluster, node: str) -> dict[str, str]:
    """What a broker tells of itself; nothing when we may not ask. Raises BrokerError."""
    answer = cluster.call(node, Ask.RUNTIME_INFO, {})
    with understood(node):
        return dict(loads(answer.body.decode()).get("table") or {}) if answer.code == Code.OK else {}


def _check_age(cluster: Cluster, node: str, since: int) -> None:
    """A store whose first message is younger has been replaced since then, or has deleted some."""
    first = runtime_facts(cluster, node).get("commitLogMinOffset", "none")
    answer = cluster.call(node, Ask.VIEW_MESSAGE, {"offset": first}) if first.isdigit() else None
    messages = list(decode(answer.body)) if answer is not None and answer.code == Code.OK else []
    if not any(message.stored_at * 1000 < since for message in messages):
        raise BrokerError(f"the store of {node} does not reach back to that time")


def _extents(cluster: Cluster, topic: str) -> Iterable[Extent]:
    if topic == HALF:
        return [own_extent(cluster, Place(HALF, node, 0)) for node in cluster.masters()]
    return extents(cluster, topic)


def _offset_at(cluster: Cluster, extent: Extent, moment: int) -> int:
    """The offset of the first message that was stored at `moment` (milliseconds) or later, or one before."""
    place = extent.place
    fields = {"topic": place.topic, "queueId": place.queue, "timestamp": moment}
    answer = cluster.ok(place.node, Ask.OFFSET_AT, fields)
    with understood(place.node):
        return int(answer.fields["offset"])


def _steps(cluster: Cluster, extent: Extent, first: int) -> Iterator[Step]:
    link = cluster.new_link(extent.place.node)
    try:
        walk = PullWalk(link, extent.place, first, extent.highest, _ROOM)
        yield from walk if extent.pullable else queue_walk(link, extent.place, first, extent.highest)
    finally:
        link.close()
