"""Apache RocketMQ 4.x and 5.x: dead letters of consumer groups, and half messages of transactions."""

import time
from collections.abc import Mapping
from typing import Any

from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq_cluster import Cluster
from dlq.connectors.rocketmq_facts import broker_facts
from dlq.connectors.rocketmq_outcomes import Outcomes
from dlq.connectors.rocketmq_reading import RocketReading
from dlq.connectors.rocketmq_records import DISCARDED, FINISHED, HALF
from dlq.connectors.rocketmq_snapshot import (
    Extent,
    check_group,
    dead_letter_topics,
    extent_of,
    extents,
    missing_nodes,
    plan_of,
    unpulled_extent,
)
from dlq.connectors.rocketmq_walks import Place
from dlq.core.settings import Broker

_OP_BATCH_MS = 3000
"""How long a broker since 5.1 gathers op records before it writes them (transactionOpBatchInterval)."""
_MARGIN = 0.2


class RocketConnector:
    """One RocketMQ cluster."""

    def __init__(self, broker: Broker) -> None:
        """Connects lazily. Raises ConfigError."""
        self._cluster = Cluster(broker)

    def read(self, request: ReadRequest) -> RocketReading:
        """Start a reading; it changes nothing on the broker, in either mode."""
        cluster, source = self._cluster, request.source
        cluster.masters(refresh=True)
        facts = broker_facts(cluster)
        if source.transactions:
            found, notes = _transaction_extents(cluster, facts), []
        else:
            topics = dead_letter_topics(cluster, str(source.group))
            found = [extent for topic in topics for extent in extents(cluster, topic)]
            notes = check_group(cluster, str(source.group), found)
        plan = plan_of(found, request.resume)
        plan.notes += notes
        for node in missing_nodes(cluster, request.resume):
            plan.complete = False
            plan.notes.append(
                f"{node} was read by an earlier pull and is not registered now: nothing of it was read"
            )
        topology: dict[str, Any] = {"brokers": facts, "queues": [_queue_facts(extent) for extent in found]}
        return RocketReading(cluster, request, plan, topology, Outcomes() if source.transactions else None)

    def close(self) -> None:
        """Let go of all connections."""
        self._cluster.close()


def _transaction_extents(cluster: Cluster, facts: Mapping[str, Mapping[str, object]]) -> list[Extent]:
    """The half topic first, then what ended: an op record that is still being gathered is waited for."""
    halves = list(extents(cluster, HALF))
    if any(half.highest > half.lowest for half in halves):
        batching = [f["op_batch_interval_ms"] for f in facts.values() if str(f["version"]) >= "5.1"]
        longest = max((_OP_BATCH_MS if ms is None else int(str(ms)) for ms in batching), default=0)
        time.sleep(longest / 1000 + _MARGIN)
    ended = [_finished_extent(cluster, Place(FINISHED, node, 0)) for node in cluster.masters()]
    return [*halves, *ended, *extents(cluster, DISCARDED)]


def _finished_extent(cluster: Cluster, place: Place) -> Extent:
    """4.x does not register the op topic: a pull is answered "no such topic", but its index can be read."""
    return extent_of(cluster, place) or unpulled_extent(cluster, place)


def _queue_facts(extent: Extent) -> dict[str, object]:
    return {
        "place": str(extent.place),
        "lowest": extent.lowest,
        "highest": extent.highest,
        "pullable": extent.pullable,
    }
