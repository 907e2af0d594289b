"""Whether letters are consumed: how far a group's committed offsets are behind the ends of its queues.

Consumers commit every few seconds, and brokers keep the offsets of groups that are gone.
"""

from collections.abc import Iterator
from typing import Any

from dlq.connectors.base import Consumption, Reached, Target, consumption_of
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.remoting import RequestCode, ResponseCode, long, understood
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.republish import topic_of
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.headers.rocketmq_topics import HALF

_INTERVAL = 5.0
"""Seconds between two commits of a consumer where nothing else is set (persistConsumerOffsetInterval)."""
_NOT_ONLINE = 206


def consumption(cluster: Cluster, target: Target) -> list[Consumption]:
    """Return the groups that receive what is sent to `target`; nothing where no broker tells of one."""
    groups = cluster.groups_of(target.name) if target.kind == "topic" else None
    asked = [target.name] if target.kind == "group" else sorted(groups or ())
    try:
        return [_of_group(cluster, topic_of(target), group) for group in asked]
    except AccessDenied:
        return []


def _of_group(cluster: Cluster, topic: str, group: str) -> Consumption:
    logs = dict(_progress(cluster, topic, group))
    return consumption_of(f"group {group}", logs, _consumers(cluster, group), _INTERVAL)


def _progress(cluster: Cluster, topic: str, group: str) -> Iterator[tuple[str, Reached]]:
    """Yield how far the group is in each queue; what was never committed is all unread."""
    masters = cluster.masters()
    for node, queues in cluster.route(topic).items():
        for queue in queues.to_read if node in masters else ():
            place = {"topic": topic, "queueId": queue}
            end = _offset(cluster, node, RequestCode.MAX_OFFSET, place)
            at = min(committed_offset(cluster, MessageQueue(topic, node, queue), group), end)
            start = _offset(cluster, node, RequestCode.MIN_OFFSET, place) if at < end else 0
            yield f"{node}:{queue}", Reached(at, end, start)


def committed_offset(cluster: Cluster, place: MessageQueue, group: str) -> int:
    """Return how far a group is in a queue. Raises BrokerError."""
    fields = {"topic": place.topic, "queueId": place.queue, "consumerGroup": group}
    return _offset(cluster, place.node, RequestCode.CONSUMER_OFFSET, fields)


def checked_to(cluster: Cluster, node: str) -> int | None:
    """Return how far a broker is with the checks of its half messages; None where it does not tell. Before it
    goes on from one, a newer copy is there, or a word of its end."""
    try:
        return committed_offset(cluster, MessageQueue(HALF, node, 0), "CID_RMQ_SYS_TRANS")
    except BrokerError:
        return None


def _offset(cluster: Cluster, node: str, code: int, fields: dict[str, object]) -> int:
    answer = cluster.call(node, code, fields)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return 0
    if answer.code != ResponseCode.OK:
        raise refusal(node, answer)
    with understood(node):
        return max(0, long(answer.fields["offset"]))


def _consumers(cluster: Cluster, group: str) -> int | None:
    """Connected clients of a group; None where there are none on brokers that tell, and others do not."""
    told = _online(cluster, group)
    clients = {str(client.get("clientId")) for one in told for client in one.get("connectionSet") or ()}
    return len(clients) if clients or len(told) == len(cluster.masters()) > 0 else None


def _online(cluster: Cluster, group: str) -> list[Any]:
    """Return what brokers tell of the clients of a group, an empty object of a group without any."""
    fields = {"consumerGroup": group}
    answers = [cluster.call(node, RequestCode.CONSUMER_CONNECTIONS, fields) for node in cluster.masters()]
    with understood(f"a broker of {cluster.name}"):
        return [answer.document() for answer in answers if answer.code in (ResponseCode.OK, _NOT_ONLINE)]


def is_broadcast(cluster: Cluster, group: str) -> bool:
    """Return whether clients of the group are connected that each get every message: nothing of theirs is
    kept on a broker, and none of them reads the group's retry topic
    (DefaultMQPushConsumerImpl.copySubscription)."""
    return any(told.get("messageModel") == "BROADCASTING" for told in _online(cluster, group))
