"""An edit of a header says everything, and types stay; what cannot be said is refused, naming the header."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.connectors.rabbitmq.amqp091.codec import edits
from dlq.connectors.rabbitmq.amqp091.codec.typed import named_fields
from dlq.connectors.rabbitmq.republish import block_to_send, edit_headers, edit_properties
from dlq.core.errors import UsageError
from dlq.core.record import Record

BEFORE: dict[str, Any] = {
    "n": 3, "flag": True, "text": "x", "rascal": {"queue": "orders", "tries": 2, "deep": {"on": False}},
    "list": [1, "a"], "price": Decimal("1.50"), "at": datetime(2026, 11, 2, 3, 12, 9, tzinfo=UTC),
    "void": None,
}  # fmt: skip
BLOCK = b"".join(pika.BasicProperties(headers=BEFORE, content_type="text/plain", priority=3).encode())


def after(**changed: Any) -> dict[str, Any]:
    block = edit_headers(BLOCK, lambda _name: False, changed)
    properties = pika.BasicProperties()
    properties.decode(block)
    return dict(properties.headers)


SAID = {
    "null": ({"text": None}, {"text": None}),
    "a number": ({"n": 0}, {"n": 0}),
    "a number as an export shows it": ({"n": "7"}, {"n": 7}),
    "a table": ({"rascal": {"queue": "bills", "tries": 0}}, {"rascal": {"queue": "bills", "tries": 0}}),
    "a table as an export shows it": ({"rascal": '{"tries": 5}'}, {"rascal": {"tries": 5}}),
    "an array": ({"list": [2, "b"]}, {"list": [2, "b"]}),
    "true": ({"flag": "false"}, {"flag": False}),
    "a decimal": ({"price": "2.5"}, {"price": Decimal("2.5")}),
    "a time": ({"at": "2026-11-02T03:12:10Z"}, {"at": datetime(2026, 11, 2, 3, 12, 10, tzinfo=UTC)}),
    "something new": ({"new": {"a": [None, 7, True]}}, {"new": {"a": [None, 7, True]}}),
    "what was void": ({"void": "now"}, {"void": "now"}),
}


@each_row(("changed", "expected"), SAID.values(), ids=list(SAID))
def test_an_edit_says_it(changed: dict[str, Any], expected: dict[str, Any]) -> None:
    assert after(**changed) == after() | expected


def test_a_number_keeps_its_width() -> None:
    before, now = (
        dict(named_fields(edits.header_table(block)))["n"]
        for block in (BLOCK, edit_headers(BLOCK, lambda _n: False, {"n": 9}))
    )
    assert now == before[:1] + (9).to_bytes(4)
    inner = edit_headers(BLOCK, lambda _n: False, {"rascal": {"tries": 4}})
    assert b"\x05triesI\x00\x00\x00\x04" in inner


@each_row(
    ("name", "value"),
    [("n", "many"), ("n", 2**40), ("flag", "yes"), ("rascal", "orders"), ("rascal", [1]), ("list", {"a": 1}),
     ("price", "1.505"), ("at", "noon")],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"header '{name}'"):
        edit_headers(BLOCK, lambda _name: False, {name: value})


def test_changed_properties_leave_the_headers_to_the_byte() -> None:
    block = edit_properties(BLOCK, {"content_type": "application/json", "message_id": "m"})
    assert edits.header_table(block) == edits.header_table(BLOCK)
    properties = pika.BasicProperties()
    properties.decode(block)
    found = properties.content_type, properties.priority, properties.message_id
    assert found == ("application/json", None, "m")
    with pytest.raises(UsageError, match="no property 'colour'"):
        edit_properties(BLOCK, {"colour": "red"})


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


@each_row("fields", [
    {"headers": {"a": 2**70, "b": "x"}},
    {"headers": {"a" * 300: 1}},
    {"headers": {"a": 1}, "properties": {"no such": "property"}},
    {"headers": {"a": 1}, "properties": {"priority": "high"}},
])  # fmt: skip
def test_what_amqp_cannot_say_is_evidence_all_the_same(fields: dict[str, Any]) -> None:
    record = foreign(**fields)
    assert record.raw_properties is None
    assert record.headers.keys() == fields["headers"].keys()


def test_a_framework_s_id_becomes_no_property() -> None:
    record = foreign(headers={"task": "pay", "id": "t-1", "retries": 2})
    block = block_to_send(record, {}, False)
    assert (record.message_id, b"t-1" in block) == ("t-1", True)
    assert block.count(b"t-1") == 1
