"""What a delivery tells of a letter: the same of the same one, however it was read."""

from typing import Any

from support.archives import letter
from support.rows import each_row

from dlq.connectors.activemq.records.recognition import tell as told_by_activemq
from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.connectors.kafka.records.recognition import tell as told_by_kafka
from dlq.connectors.rabbitmq.amqp091.codec.table import edit
from dlq.connectors.rabbitmq.records.recognition import tell as told_by_rabbitmq

ORIGINAL = RawRecord(b"key", [("tenant", b"a")], 7)
POINTER = RawRecord(None, [("__share.group", b"g")], 9, is_null=True)
GONE: dict[str, Any] = {
    "raw_properties": encode(POINTER),
    "properties": {"offset": "4", "pointer": "it is gone"},
}
FOUND: dict[str, Any] = {
    "raw_properties": encode(POINTER._replace(original=ORIGINAL)),
    "body": b"value",
    "headers": {"tenant": "a"},
    "properties": {"offset": "4", "pointer": "resolved", "key": "key"},
}
SHOWN: dict[str, Any] = {
    "body": b"x", "headers": {"type": "mine", "note": "\ufffd\ufffd", "subscription": "1"},
    "raw_properties": b"type:mine\nnote:",
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "body": b"x", "headers": {"type": "order", "note": "\U0001f600", "ack": "2"},
    "raw_properties": b"\0\0\0\7\0rest",
    "properties": {"class": "text", "property type": "mine", "redelivery counter": "1"},
}  # fmt: skip
BLOCK = edit(b"\x00\x00", set_headers={"tenant": "a"})
ONCE = {"raw_properties": BLOCK, "headers": {"tenant": "a"}}
AGAIN = {
    "raw_properties": edit(BLOCK, set_headers={"x-delivery-count": 3}),
    "headers": {"tenant": "a", "x-delivery-count": "3"},
}


@each_row(
    ("told", "one", "other", "expected"),
    [
        (told_by_kafka, GONE, FOUND, True),
        (told_by_kafka, FOUND, FOUND | {"body": b"forged"}, False),
        (told_by_kafka, GONE, FOUND | {"properties": {"offset": "5", "pointer": "resolved"}}, False),
        (told_by_activemq, SHOWN, WHOLE, True),
        (told_by_activemq, WHOLE, WHOLE | {"headers": WHOLE["headers"] | {"ack": "3"}}, True),
        (told_by_activemq, SHOWN, WHOLE | {"body": b"y"}, False),
        (told_by_activemq, SHOWN, WHOLE | {"properties": {"class": "text"}}, False),
        (told_by_activemq, WHOLE, WHOLE | {"properties": WHOLE["properties"] | {"class": "map"}}, False),
        (told_by_rabbitmq, ONCE, AGAIN, True),
        (told_by_rabbitmq, ONCE, {"raw_properties": b"no block"}, False),
    ],
    ids=[
        "an original that is gone", "another original", "another pointer",
        "what STOMP hides, or shows otherwise", "a delivery's own", "another body", "another property",
        "another class", "a count of deliveries", "damage",
    ],
)  # fmt: skip
def test_a_letter_is_known_however_it_was_read_and_another_is_not(
    told: Any, one: dict[str, Any], other: dict[str, Any], expected: bool
) -> None:
    assert told(letter(1, **one)).is_same(told(letter(1, **other))) == expected
