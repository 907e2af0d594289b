"""The private topic and group of a rehearsal, on one broker, with one queue: what is left is its end.

What the group's consumers give up lies in its dead-letter topic. What they send back for another try, which
may go on for hours, is looked for where brokers hold it until then.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing

from dlq.connectors.base import NO_CHECKPOINT, Checkpoint, Private, Reading, ReadRequest, Target
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.remoting import RequestCode, ResponseCode
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import unpulled_offsets
from dlq.core.errors import AccessDenied, BrokerError, name_rights
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS, DELAYED, RETRY
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Source

_LEVELS = 18
"""Queues of delayed messages, one a level (messageDelayLevel)."""
_DENIED = f"a rehearsal makes and deletes dlq_rehearsal_*, and reads {DELAYED}; let the access key do that"
_POINT = (
    'Spring: @RocketMQMessageListener(topic = "{0}", consumerGroup = "{0}", maxReconsumeTimes = 0)',
    'Java: new DefaultMQPushConsumer("{0}"), subscribe("{0}", "*"), setMaxReconsumeTimes(0),',
    "    setConsumeFromWhere(CONSUME_FROM_FIRST_OFFSET)",
    'Go: consumer.WithGroupName("{0}"), consumer.WithMaxReconsumeTimes(0), Subscribe("{0}", …)',
    "All: a copy that is sent back for another try counts as died; MassTransit speaks no RocketMQ",
)


class RocketPrivate(Private):
    """See `Private`."""

    def __init__(self, cluster: Cluster, name: str, read: Callable[[ReadRequest], Reading]) -> None:
        self._name = name = name.replace(".", "_")  # no topic's name holds a dot
        point = [line.format(name) for line in _POINT]
        super().__init__(Target("topic", name), {"topic": name}, {"group": name}, point, makes_dead=False)
        self._cluster, self._read = cluster, read
        self._delayed_before: Checkpoint = NO_CHECKPOINT

    @name_rights(_DENIED)
    def make(self) -> None:
        """Create topic and group on one broker, and wait until clients find it."""
        cluster, node = self._cluster, next(iter(self._cluster.masters()))
        places = [
            MessageQueue(DELAYED, name, level) for name in cluster.masters() for level in range(_LEVELS)
        ]
        self._delayed_before = {str(place): unpulled_offsets(cluster, place).highest for place in places}
        numbers = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
        kind = {"topicFilterType": "SINGLE_TAG", "order": False, "defaultTopic": "TBW102"}
        self._do(node, RequestCode.CREATE_TOPIC, {"topic": self._name, **numbers, **kind})
        group = {"groupName": self._name, "retryMaxTimes": 0, "retryQueueNums": 1, "consumeEnable": True}
        self._do(node, RequestCode.CREATE_GROUP, {}, json.dumps(group).encode())
        if not any(node in cluster.route(self._name) for _ in patience.tries(cluster.timeout)):
            raise BrokerError(f"{cluster.name}: the new topic {self._name} does not show")

    @name_rights(_DENIED)
    def collect(self) -> Sequence[Record]:
        """Find the copies that were sent back for another try since."""
        source = Source("rehearsal", self._cluster.name, topic=DELAYED)
        request = ReadRequest(source, "drain", "rehearsal", resume=self._delayed_before)
        with closing(self._read(request)) as reading:
            found = (record for batch in reading.batches() for record in batch.records)
            return [one for one in found if one.properties.get("REAL_TOPIC") == f"{RETRY}{self._name}"]

    @name_rights(_DENIED)
    def remove(self) -> None:
        """Delete the group, and all its topics."""
        names = (self._name, f"{RETRY}{self._name}", f"{DEAD_LETTERS}{self._name}")
        topics = [topic for topic in names if self._cluster.route(topic)]
        for node in self._cluster.masters() if topics else ():
            for topic in topics:
                self._do(node, RequestCode.DELETE_TOPIC, {"topic": topic})
            self._do(node, RequestCode.DELETE_GROUP, {"groupName": self._name})
        for topic in topics:
            self._cluster.forget_route(topic)

    def _do(self, node: str, code: RequestCode, fields: dict[str, object], body: bytes = b"") -> None:
        """Ask a node to do something. A broker complains of what it has not, and of timers that it lacks,
        when it deletes."""
        answer = self._cluster.link(node).call(code, fields, body)
        refused = None if answer.code == ResponseCode.OK else refusal(node, answer)
        is_of_no_matter = code in (RequestCode.DELETE_TOPIC, RequestCode.DELETE_GROUP)
        if isinstance(refused, AccessDenied) or (refused and not is_of_no_matter):
            raise refused
