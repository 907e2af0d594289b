"""An edit of a letter of AMQP 1.0 says everything, in the types that it had, or is refused by name."""

from collections.abc import Mapping
from uuid import UUID

import proton
import pytest
from proton import Array, Data, Message, timestamp, ubyte, ulong, ushort
from support.rows import each_row

from dlq.connectors.activemq.records import amqp10
from dlq.connectors.amqp10.codec import message
from dlq.connectors.rabbitmq import republish
from dlq.connectors.rabbitmq.records import amqp10 as rabbitmq_records
from dlq.core.errors import UsageError

SEVEN, EIGHT = UUID(int=7), UUID(int=8)
BEFORE: Mapping[str, object] = {
    "text": "a", "truth": True, "byte": proton.byte(-1), "ubyte": ubyte(1), "ushort": ushort(1),
    "int": proton.int32(1), "uint": proton.uint(1), "ulong": ulong(2**63), "long": 5,
    "float": proton.float32(0.5), "double": 0.25, "none": None, "time": timestamp(1_700_000_000_000),
    "uuid": SEVEN, "binary": b"abc", "symbol": proton.symbol("s"), "char": proton.char("c"),
    "list": [1, ubyte(2), None], "map": {"id": SEVEN, "n": ushort(3)}, "kept": [SEVEN, {"a": ubyte(1)}],
    "array": Array(Data.INT, Data.INT, 1, 2),
}  # fmt: skip


def edited(**changes: object) -> dict[str, object]:
    """The application properties after an edit, as a client of other hands reads them."""
    given = {name: value for name, value in BEFORE.items() if name != "array"}
    block, body, _ = message.split(Message(body=b"x", inferred=True, properties=given).encode())
    after = Message()
    after.decode(message.join_message(message.edit_typed(block, lambda _name: False, changes), body))
    return {name: bytes(value) if name == "binary" else value for name, value in after.properties.items()}


@each_row(("name", "wanted", "found"), [
    ("text", "b", "b"), ("text", None, None), ("text", True, True), ("text", {"a": [1]}, {"a": [1]}),
    ("truth", False, False), ("truth", "false", False), ("byte", -2, proton.byte(-2)),
    ("ubyte", "2", ubyte(2)),
    ("ushort", 2, ushort(2)), ("int", 2, proton.int32(2)), ("uint", 2, proton.uint(2)),
    ("ulong", 2**64 - 1, ulong(2**64 - 1)),
    ("long", 6, 6), ("float", 1.5, proton.float32(1.5)), ("double", 2, 2.0), ("none", "now", "now"),
    ("time", "2023-11-14T22:13:21Z", timestamp(1_700_000_001_000)), ("time", 5, timestamp(5)),
    ("uuid", str(EIGHT), EIGHT), ("binary", "wört", "wört".encode()), ("symbol", "t", proton.symbol("t")),
    ("char", "é", proton.char("é")), ("list", [1, 3, None], [1, ubyte(3), None]), ("list", "[2]", [2]),
    ("map", {"id": str(EIGHT), "n": 4, "new": 1.5}, {"id": EIGHT, "n": ushort(4), "new": 1.5}),
    ("new", [None, True], [None, True]), ("new", {}, {}), ("new", [], []),
])  # fmt: skip
def test_a_value_keeps_its_type(name: str, wanted: object, found: object) -> None:
    after = edited(**{name: wanted})
    assert (after[name], type(after[name])) == (found, type(found))
    others = {key: value for key, value in BEFORE.items() if key not in (name, "array")}
    assert {key: value for key, value in after.items() if key != name} == others


@each_row(("name", "wanted"), [
    ("truth", "maybe"), ("truth", 1), ("ubyte", 256), ("ubyte", True), ("int", "x"), ("int", 1.5),
    ("float", "x"), ("time", "noon"), ("uuid", "7"), ("char", "ab"), ("binary", "a\\xff"), ("list", {}),
    ("map", [1]), ("map", "{"), ("long", 2**63), ("new", 2**63), ("kept", ["no uuid"]),
])  # fmt: skip
def test_what_cannot_be_said_is_refused_naming_the_header(name: str, wanted: object) -> None:
    with pytest.raises(UsageError, match=f"header '{name}': "):
        edited(**{name: wanted})


PROPERTIES: Mapping[str, object] = {
    "id": SEVEN, "user_id": b"me", "subject": "s", "correlation_id": ulong(2**63),
    "content_type": "text/plain", "creation_time": 1_700_000_000.0, "group_sequence": 3, "address": "to",
}  # fmt: skip


def with_properties(**changes: str | None) -> Message:
    """A message after an edit of its properties (None: taken out), as a client of other hands reads it."""
    block, body, _ = message.split(Message(body=b"x", inferred=True, **PROPERTIES).encode())
    before = amqp10.properties_of(message.parts(block))
    wanted = {name: text for name, text in {**before, **changes}.items() if text is not None}
    after = Message()
    after.decode(message.join_message(amqp10.edit_properties(block, wanted), body))
    return after


def test_a_property_keeps_its_type_and_the_others_are_as_they_were() -> None:
    after = with_properties(
        message_id=f"urn:uuid:{EIGHT}", correlation_id="5", subject=None, group_sequence="4",
        creation_time="2023-11-14T22:13:21Z", content_encoding="gzip", reply_to="answers",
    )  # fmt: skip
    assert (after.id, after.correlation_id, after.subject) == (EIGHT, ulong(5), None)
    assert (after.group_sequence, after.creation_time) == (4, 1_700_000_001.0)
    assert (after.content_encoding, after.reply_to) == ("gzip", "answers")
    assert (after.user_id, after.address, after.content_type) == (b"me", "to", "text/plain")


@each_row(("name", "text"), [
    ("class", "other"), ("priority", "9"), ("colour", "red"), ("correlation_id", "x"),
    ("creation_time", "x"), ("group_sequence", "-1"), ("message_id", "x"),
])  # fmt: skip
def test_a_property_that_cannot_be_said_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"property '{name}'"):
        with_properties(**{name: text})


def test_properties_of_rabbitmq_are_edited_by_the_names_of_amqp_1_0() -> None:
    block, _, _ = message.split(Message(body=b"x", inferred=True, **PROPERTIES).encode())
    shown = rabbitmq_records.properties_of(message.parts(block), is_encoded=False)
    edited = republish.edit_properties(block, {**shown, "subject": "t"})
    assert message.parts(edited).properties["subject"].value == "t"
    assert republish.edit_properties(edited, shown) == republish.edit_properties(block, shown)
    with pytest.raises(UsageError, match="no property 'priority'"):
        republish.edit_properties(block, {**shown, "priority": "7"})
