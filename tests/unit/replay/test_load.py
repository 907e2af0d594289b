"""Letters read for sending: fewer columns, the same bytes on the wire."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.archives import letter, write_segment

from dlq.archive.storage.store import LocalStore
from dlq.connectors.activemq import republish
from dlq.connectors.base import Outgoing, Target
from dlq.connectors.kafka import republish as kafka_sending
from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.connectors.rocketmq import republish as rocketmq_sending
from dlq.connectors.rocketmq.link.message import encode_properties
from dlq.core.record import Record
from dlq.replay.runs.load import Loader

PROVENANCE = {"dlq_replay_id": "ab" * 16, "dlq_replay_lap": "1", "dlq_replay_of": "0" * 32}
ORDERS, TOPIC, GROUP = Target("queue", "orders"), Target("topic", "orders"), Target("group", "pay")
HEADERS = {
    "content-length": "4", "message-id": "ID:1", "tenant": "a:b", "_AMQ_GROUP_ID": "g", "priority": "7",
}  # fmt: skip
OF_ROCKETMQ = {
    "broker_kind": "rocketmq", "broker_node": "broker-a", "dead_letter_queue": "%DLQ%pay",
    "headers": {"flag": "3", "sysFlag": "1"}, "flags": 1,
    "raw_properties": encode_properties({"KEYS": "k", "UNIQ_KEY": "u"}),
}  # fmt: skip


def of_activemq(kind: str) -> dict[str, Any]:
    block = "".join(f"{name}:{value}\n" for name, value in HEADERS.items()).encode()
    own = {"broker_kind": kind, "headers": HEADERS, "raw_properties": block}
    return {**own, "properties": {"JMSXGroupID": "g"}, "persistent": True, "priority": 7}


OF_KAFKA = {
    "broker_kind": "kafka", "dead_letter_queue": "orders-dlt", "origin": "orders", "flags": 0,
    "published_at": 1_600_000_000_000_000, "headers": {"kafka_dlt-original-topic": "orders"},
    "raw_properties": encode(RawRecord(b"k", [
        ("a", None), ("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", b"\0\0\0\7"),
    ])),
}  # fmt: skip


def frame(record: Record) -> object:
    return republish.wire(Outgoing(0, record, ORDERS, PROVENANCE), "t")


def message(record: Record) -> object:
    return [rocketmq_sending.message_of(Outgoing(0, record, target, PROVENANCE)) for target in (TOPIC, GROUP)]


def kafka_message(record: Record) -> object:
    return kafka_sending.message_of(Outgoing(0, record, TOPIC, PROVENANCE))


@pytest.mark.parametrize(("own", "sent"), [
    (of_activemq("activemq"), frame), (of_activemq("artemis"), frame), (OF_ROCKETMQ, message),
    (OF_KAFKA, kafka_message),
])  # fmt: skip
def test_a_lean_letter_is_sent_like_a_whole_one(
    tmp_path: Path, own: dict[str, Any], sent: Callable[[Record], object]
) -> None:
    whole = letter(0, body=b"body", body_size=4, **own)
    store = LocalStore(str(tmp_path))
    write_segment(store, "p-00001", [whole])
    place: Any = SimpleNamespace(record_id=whole.record_id, segment="p-00001", row=0)
    (lean,) = Loader(store, lean=True).records([place])
    assert (lean.source, lean.broker_node) == ("", whole.broker_node)
    assert sent(lean) == sent(whole)
