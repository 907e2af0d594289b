"""The evidence of a plan as it stands in its file: what brokers gave in November 2026, and older plans."""

from typing import Any

from support.rows import each_row

from dlq.connectors.activemq.prove import evidence as activemq
from dlq.connectors.activemq.prove.evidence import STARTED, Count, Run, counts_of
from dlq.connectors.base import Evidence
from dlq.connectors.kafka.look.cluster import Topic
from dlq.connectors.kafka.prove import evidence as kafka
from dlq.connectors.kafka.prove.evidence import End, TopicEnds
from dlq.connectors.rocketmq.prove import evidence as rocketmq
from dlq.connectors.rocketmq.prove.evidence import Lead, QueueEnd, Store
from dlq.connectors.rocketmq.read.queue import MessageQueue

CLUSTER, TOPIC = "A5-voZEaQuOajmSu4eycRw", Topic("orders-1", "IKaHIEPPS4ie6kjceRMxWA", 2)
KAFKA: Evidence = {
    "orders-1@A5-voZEaQuOajmSu4eycRw/IKaHIEPPS4ie6kjceRMxWA:#partitions": 2,
    "orders-1@A5-voZEaQuOajmSu4eycRw/IKaHIEPPS4ie6kjceRMxWA:0": 7,
    "orders-1@A5-voZEaQuOajmSu4eycRw/IKaHIEPPS4ie6kjceRMxWA:0#epoch": 3,
    "orders-1@A5-voZEaQuOajmSu4eycRw/IKaHIEPPS4ie6kjceRMxWA:1": 0,
    "orders-1@A5-voZEaQuOajmSu4eycRw/IKaHIEPPS4ie6kjceRMxWA:1#epoch": 0,
}
HALF = MessageQueue("RMQ_SYS_TRANS_HALF_TOPIC", "broker-a", 0)
ORDERS = MessageQueue("orders-2", "broker-a", 0)
HIDDEN = MessageQueue("orders-2", "broker-a", 1)
ROCKETMQ: Evidence = {
    "broker-a#master 10.28.48.2:24030": 1,
    "broker-a#epoch 3": 1,
    "#kept": 1795991853896348,
    "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0": 0,
    "orders-2@broker-a:0": 1,
    "orders-2@broker-a:0#stored": 1795991853607,
    "orders-2@broker-a:1": -1,
    "broker-a#boot": 1795991851927,
    "broker-a#clock": 1795991852927,
    "broker-a#start": 0,
    "broker-a#first1795991851927": 1795991853607,
}
MARKERS, NODE = "dlq.replay.letters.3", "92f71207-ec45-11f1-ac81-22f8071d7b7b"
ARTEMIS: Evidence = {
    "started": 1795991898744,
    "unRoutedMessageCount letters.3.back": 0,
    "routedMessageCount letters.3.back": 1,
    "messagesAdded letters.3.back": 1,
    f"{MARKERS} 5e7444bddb56e15f/0 {NODE}": 0,
    f"{MARKERS} fbd5d384f8a5d6a2/0 {NODE}": 0,
}
RUNS = [Run("5e7444bddb56e15f/0", NODE), Run("fbd5d384f8a5d6a2/0", NODE)]
CLASSIC: Evidence = {f"{MARKERS} 1566ee36a7462aa4/0": 0}


def without(evidence: Evidence, end: str) -> Evidence:
    return {key: value for key, value in evidence.items() if not key.endswith(end)}


@each_row(("evidence", "topic", "known"), [
    (KAFKA, TOPIC, TopicEnds({0: End(7, 3), 1: End(0, 0)}, 2)),
    (without(without(KAFKA, "#epoch"), "#partitions"), TOPIC, TopicEnds({0: End(7), 1: End(0)}, 2)),
    (without(KAFKA, ":1"), TOPIC, TopicEnds({0: End(7, 3)}, 2)),
    (KAFKA, TOPIC._replace(partitions=3), TopicEnds({0: End(7, 3), 1: End(0, 0)}, 2)),
    ({}, TOPIC, TopicEnds({}, 2, "nothing says where orders-1 ended before the first letter was sent")),
    (KAFKA, TOPIC._replace(id="new"), TopicEnds({}, 2, "orders-1 was deleted and made again since")),
])  # fmt: skip
def test_where_partitions_ended_is_read(evidence: Evidence, topic: Topic, known: TopicEnds) -> None:
    assert kafka.read(evidence, CLUSTER, topic) == known


def test_a_partition_that_came_later_began_at_its_start() -> None:
    later = {**KAFKA, **kafka.write(CLUSTER, TOPIC._replace(partitions=3), {2: End(9, 4)}), **KAFKA}
    known = kafka.read(later, CLUSTER, TOPIC._replace(partitions=3))
    assert [known.end_of(number) for number in range(3)] == [End(7, 3), End(0, 0), End(0, 0)]


WRITTEN: list[tuple[Evidence, Evidence]] = [
    (KAFKA, kafka.write(CLUSTER, TOPIC, {0: End(7, 3), 1: End(0, 0)})),
    (ROCKETMQ, {
        rocketmq.KEPT: 1795991853896348,
        **Lead(frozenset({"10.28.48.2:24030"}), frozenset({"3"})).write("broker-a"),
        **QueueEnd(0).write(HALF),
        **QueueEnd(1, 1795991853607).write(ORDERS),
        **QueueEnd(None).write(HIDDEN),
        **Store(1795991851927, 1795991852927, 0, 1795991853607).write("broker-a"),
    }),
    (ARTEMIS, {
        **activemq.write_counts(activemq.read_counts(ARTEMIS)),
        **RUNS[0].write(MARKERS),
        **RUNS[1].write(MARKERS),
    }),
    (CLASSIC, Run("1566ee36a7462aa4/0").write(MARKERS)),
]  # fmt: skip


@each_row(("kept", "written"), WRITTEN)
def test_what_is_written_is_what_plans_have_kept_so_far(kept: Evidence, written: Evidence) -> None:
    assert written == kept


[UNROUTED, ROUTED, ADDED] = counts_of("letters.3.back", ["letters.3.back"])
READ = [
    (kafka.read(KAFKA, "other", TOPIC).doubt, "another cluster than other was sent to, under the same name"),
    (QueueEnd.read(ROCKETMQ, HALF), QueueEnd(0)),
    (QueueEnd.read(ROCKETMQ, ORDERS), QueueEnd(1, 1795991853607)),
    (QueueEnd.read(ROCKETMQ, HIDDEN), QueueEnd(None)),
    (QueueEnd.read({}, HALF), None),
    (rocketmq.list_queues(ROCKETMQ, "orders-2"), [ORDERS, HIDDEN]),
    (Store.read(ROCKETMQ, "broker-a"), Store(1795991851927, 1795991852927, 0, 1795991853607)),
    (Store.read({"broker-a#boot": 1, "broker-a#first2": 3}, "broker-a"), Store(1)),
    (Store.read(ROCKETMQ, "broker-b"), None),
    (Lead.read(ROCKETMQ, "broker-a"), Lead(frozenset({"10.28.48.2:24030"}), frozenset({"3"}))),
    (Lead.read({}, "broker-a"), Lead()),
    (activemq.read_counts(ARTEMIS), {STARTED: 1795991898744, UNROUTED: 0, ROUTED: 1, ADDED: 1}),
    (activemq.read_counts({"messagesAdded a b": 2}), {Count("queue.a b", "messagesAdded"): 2}),
    (activemq.read_counts(CLASSIC), {}),
    (activemq.read_runs(ARTEMIS, MARKERS), RUNS),
    (activemq.read_runs(CLASSIC, MARKERS), [Run("1566ee36a7462aa4/0")]),
    (activemq.read_runs({f"{MARKERS} 1566ee36a7462aa4/0 ": 0}, MARKERS), [Run("1566ee36a7462aa4/0")]),
    (activemq.read_runs(ARTEMIS, "dlq.replay.letters"), []),
]


@each_row(("read", "meant"), READ)
def test_what_plans_have_kept_is_read(read: Any, meant: Any) -> None:
    assert read == meant
