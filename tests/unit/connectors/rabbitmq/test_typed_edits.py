"""An edit of a header says everything, and types stay; what cannot be said is refused, naming the header."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from support.rows import each_row

from dlq.connectors.rabbitmq.amqp import edits, typed
from dlq.connectors.rabbitmq.republishing import edit_headers, edit_properties
from dlq.core.errors import UsageError

BEFORE: dict[str, Any] = {
    "n": 3,
    "flag": True,
    "text": "x",
    "rascal": {"queue": "orders", "tries": 2, "deep": {"on": False}},
    "list": [1, "a"],
    "price": Decimal("1.50"),
    "at": datetime(2026, 11, 2, 3, 12, 9, tzinfo=UTC),
    "void": None,
}
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
    before = after()
    found = after(**changed)
    assert {name: found[name] for name in expected} == expected
    assert {name: found[name] for name in before if name not in changed} == {
        name: value for name, value in before.items() if name not in changed
    }


def test_a_number_keeps_its_width() -> None:
    fields = dict(typed.named_fields(edits.header_table(edit_headers(BLOCK, lambda _n: False, {"n": 9}))))
    assert fields["n"] == dict(typed.named_fields(edits.header_table(BLOCK)))["n"][:1] + (9).to_bytes(4)
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
    assert (properties.content_type, properties.priority, properties.message_id) == (
        "application/json",
        None,
        "m",
    )
    with pytest.raises(UsageError, match="no property 'colour'"):
        edit_properties(BLOCK, {"colour": "red"})
