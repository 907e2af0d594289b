"""A line that no export wrote brings its headers with the types that JSON and AMQP both know."""

from typing import Any

import pytest
from support.analyzers.letters import imported

from dlq.connectors.rabbitmq.amqp import edits
from dlq.connectors.rabbitmq.amqp.typed import named_fields
from dlq.connectors.rabbitmq.republishing import block_to_send
from dlq.core.record import Record

TYPES = {"a": True, "b": 5, "c": 1.5, "d": None, "e": ["x", 1], "f": {"g": False}, "h": "5"}
KINDS = {"a": b"t", "b": b"l", "c": b"d", "d": b"V", "e": b"A", "f": b"F", "h": b"S"}


def foreign(**fields: Any) -> Record:
    return imported({"broker_kind": "rabbitmq", "queue": "orders.dlq", "body_text": "x", **fields})


def kinds_sent(record: Record) -> dict[str, bytes]:
    fields = named_fields(edits.header_table(block_to_send(record, {}, False)))
    return {name: field[:1] for name, field in fields}


def test_types_of_json_go_out_as_types_of_amqp() -> None:
    record = foreign(headers={**TYPES, "x-death": [{"reason": "rejected", "queue": "orders", "count": 1}]})
    assert kinds_sent(record) == KINDS
    assert (record.deaths[0].queue, record.headers["a"], record.headers["d"]) == ("orders", "true", "null")


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"a": 2**70, "b": "x"}},
        {"headers": {"a" * 300: 1}},
        {"headers": {"a": 1}, "properties": {"no such": "property"}},
        {"headers": {"a": 1}, "properties": {"priority": "high"}},
    ],
)
def test_what_amqp_cannot_say_is_evidence_all_the_same(fields: dict[str, Any]) -> None:
    record = foreign(**fields)
    assert record.raw_properties is None
    assert record.headers.keys() == fields["headers"].keys()


def test_a_framework_s_id_becomes_no_property() -> None:
    record = foreign(headers={"task": "pay", "id": "t-1", "retries": 2})
    block = block_to_send(record, {}, False)
    assert (record.message_id, b"t-1" in block) == ("t-1", True)
    assert block.count(b"t-1") == 1
