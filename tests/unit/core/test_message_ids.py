"""A message is called as its application calls it, and its business key follows."""

import json
from typing import Any

from support.analyzers.letters import imported
from support.rows import each_row

from dlq.connectors.activemq.records.frames import Place, record_maker
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.base import ReadRequest
from dlq.core.headers.message_ids import logged_id
from dlq.core.settings import Source

DRAMATIQ = {"queue_name": "q", "actor_name": "pay", "args": [], "message_id": "d-1", "options": {}}


@each_row(("headers", "body", "known"), [
    ({"task": "shop.pay", "id": "t-1"}, b"[]", "t-1"),
    ({"id": "t-1"}, b"[]", None),
    ({"_watermill_message_uuid": "w-1"}, b"", "w-1"),
    ({}, json.dumps(DRAMATIQ).encode(), "d-1"),
    ({}, b'{"task": "shop.pay", "id": "t-1", "args": []}', "t-1"),
    ({}, b'{"uuid": "u-1", "displayName": "App\\\\Jobs\\\\Pay", "job": "x"}', "u-1"),
    ({}, b'{"message_id": "m-1", "text": "an order"}', None),
    ({}, b'{"actor_name": "pay", "message_id": 7}', None),
    ({}, b'{"actor_name": "pay", "message_id": ', None),
    ({}, b'{"actor_name": "pay", "message_id": "\\ud800"}', "\\ud800"),
    ({}, b'{"actor_name": ' * 3000, None),
])  # fmt: skip
def test_a_framework_keeps_its_id_elsewhere(headers: dict[str, str], body: bytes, known: str | None) -> None:
    assert logged_id(None, headers, body) == known
    assert logged_id("of AMQP", headers, body) == "of AMQP"


@each_row(("headers", "known"), [
    (b"__HDR_MESSAGE_ID:ID\\chost-1-2-3\\c1\\c1\\c1\\c5", "ID:host-1-2-3:1:1:1:5"),
    (b"NATIVE_MESSAGE_ID:order-7", "order-7"),
    (b"NATIVE_MESSAGE_ID:ID\\cAMQP_NO_PREFIX\\corder-7", "order-7"),
    (b"NATIVE_MESSAGE_ID:ID\\cAMQP_BINARY\\cno", "ID:AMQP_BINARY:no"),
    (b"NATIVE_MESSAGE_ID:ID\\c5-6-7", "ID:5-6-7"),
    (b"a:b", "77"),
])  # fmt: skip
@each_row("key", ["message_id", "json:$.order"])
def test_artemis_numbers_are_the_physical_ids_alone(headers: bytes, known: str, key: str) -> None:
    source = Source("s", "b", queue="q", key=key)
    make = record_maker(ReadRequest(source, "drain", "p"), Place("q", "artemis", "2", "n"))
    head = b"message-id:0,9\n_AMQ_ORIG_MESSAGE_ID:77\n" + headers
    [record] = make([Frame(b"MESSAGE", head, b'{"order": 5}')])
    assert (record.message_id, record.physical_id) == (known, "77")
    assert record.key == (known if key == "message_id" else "5")


def test_so_are_those_of_foreign_lines() -> None:
    record = imported({"broker_kind": "rabbitmq", "headers": {"task": "shop.pay", "id": "t-1"}})
    assert (record.message_id, record.key) == ("t-1", "t-1")
    for name in ("__HDR_MESSAGE_ID", "NATIVE_MESSAGE_ID"):
        told: dict[str, Any] = {"message-id": "0,9", "_AMQ_ORIG_MESSAGE_ID": "77", name: "order-7"}
        record = imported({"broker_kind": "artemis", "queue": "DLQ", "headers": told})
        assert (record.message_id, record.physical_id, record.key) == ("order-7", "77", "order-7")
