"""The private topic and group of a rehearsal, on one broker, with one queue: what is left is its end.

What the group's consumers give up lies in its dead-letter topic. What they send back for another try, which
may go on for hours, is looked for where brokers hold it until then.
"""

import json
import time
from collections.abc import Iterator

from dlq.connectors.base import Checkpoint, Private, Target
from dlq.connectors.rocketmq.cluster import Cluster, refusal
from dlq.connectors.rocketmq.queue_scan import MessageQueue
from dlq.connectors.rocketmq.remoting import RequestCode, ResponseCode
from dlq.connectors.rocketmq.snapshot import unpulled_offsets
from dlq.core.errors import AccessDenied, BrokerError
from dlq.core.rocketmq_topics import DEAD_LETTERS, DELAYED, RETRY

_LEVELS = 18
"""Queues of delayed messages, one a level (messageDelayLevel)."""
_PAUSE = 0.1
_DENIED = "a rehearsal makes and deletes topics and groups dlq_rehearsal_*; let the access key do that"
_POINT = (
    'Spring: @RocketMQMessageListener(topic = "{0}", consumerGroup = "{0}", maxReconsumeTimes = 0)',
    'Java: new DefaultMQPushConsumer("{0}"), subscribe("{0}", "*"), setMaxReconsumeTimes(0),',
    "    setConsumeFromWhere(CONSUME_FROM_FIRST_OFFSET)",
    'Go: consumer.WithGroupName("{0}"), consumer.WithMaxReconsumeTimes(0), Subscribe("{0}", …)',
    "All: a copy that is sent back for another try counts as died; MassTransit speaks no RocketMQ",
)


def name_places(name: str) -> Private:
    """See `Connector.private`. No topic's name holds a dot."""
    name = name.replace(".", "_")
    point = [line.format(name) for line in _POINT]
    return Private(Target("topic", name), {"topic": name}, {"group": name}, point)


def make(cluster: Cluster, private: Private) -> None:
    """Create topic and group on one broker, and wait until clients find it. Raises BrokerError."""
    name, node = private.place["topic"], next(iter(cluster.masters()))
    numbers = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
    kind = {"topicFilterType": "SINGLE_TAG", "order": False, "defaultTopic": "TBW102"}
    _do(cluster, node, RequestCode.CREATE_TOPIC, {"topic": name, **numbers, **kind})
    group = {"groupName": name, "retryMaxTimes": 0, "retryQueueNums": 1, "consumeEnable": True}
    _do(cluster, node, RequestCode.CREATE_GROUP, {}, json.dumps(group).encode())
    until = time.monotonic() + cluster.timeout
    while node not in cluster.route(name):
        if time.monotonic() > until:
            raise BrokerError(f"{cluster.name}: topic {name} does not show; run it again")
        time.sleep(_PAUSE)


def remove(cluster: Cluster, private: Private) -> None:
    """Delete the group, and all its topics. Raises BrokerError."""
    name = private.place["topic"]
    topics = [topic for topic in (name, f"{RETRY}{name}", f"{DEAD_LETTERS}{name}") if cluster.route(topic)]
    for node in cluster.masters() if topics else ():
        for topic in topics:
            _do(cluster, node, RequestCode.DELETE_TOPIC, {"topic": topic}, all_refusals=False)
        _do(cluster, node, RequestCode.DELETE_GROUP, {"groupName": name}, all_refusals=False)
    for topic in topics:
        cluster.forget_route(topic)


def ends_of_the_delayed(cluster: Cluster) -> Checkpoint:
    """Where the queues of delayed messages end now."""
    return {str(place): unpulled_offsets(cluster, place).highest for place in delayed(cluster)}


def delayed(cluster: Cluster) -> Iterator[MessageQueue]:
    """The queues of delayed messages."""
    for node in cluster.masters():
        yield from (MessageQueue(DELAYED, node, level) for level in range(_LEVELS))


def _do(
    cluster: Cluster,
    node: str,
    code: RequestCode,
    fields: dict[str, object],
    body: bytes = b"",
    all_refusals: bool = True,
) -> None:
    """`all_refusals`: false for what may not be there, or is done although the broker complains."""
    answer = cluster.link(node).call(code, fields, body)
    if answer.code == ResponseCode.OK:
        return
    refused = refusal(node, answer)
    if isinstance(refused, AccessDenied):
        raise AccessDenied(f"{refused}; {_DENIED}")
    if all_refusals:
        raise refused
