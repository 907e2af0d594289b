"""A message of AMQP 1.0 keeps its bytes, whatever is taken out of it and put back."""

import contextlib
import random
import uuid
from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.amqp10.codec import message, values
from dlq.connectors.amqp10.codec.message import Parts
from dlq.connectors.amqp10.codec.values import Value, mapping, sequence, string, symbol, uint
from dlq.connectors.amqp10.codec.values import described_value as section
from dlq.connectors.rabbitmq.records import amqp10
from dlq.connectors.rabbitmq.records.amqp10 import headers_of, properties_of, readable
from dlq.core.headers.frameworks import Inside

UUID = uuid.UUID(int=7)
_UUID = b"\x98" + UUID.bytes
HEADER = section(message.HEADER, sequence([values.FALSE, values.ubyte(7), uint(600), values.FALSE, uint(3)]))
HOP = section(message.DELIVERY, mapping([symbol("hop") + uint(1)]))
ANNOTATIONS = section(message.ANNOTATIONS, mapping([
    symbol("x-delivery-count") + values.long(3), symbol("x-opt-mine") + _UUID,
    symbol("x-opt-deaths") + uint(1), symbol("x-exchange") + string("shop"),
]))  # fmt: skip
NAMED = [values.NULL, string("subject"), string("r")]
PROPERTIES = section(message.PROPERTIES, sequence([_UUID, values.binary(b"me"), *NAMED]))
CHAR = string("a") + b"\x73\0\0\0c"
APPLICATION = section(message.APPLICATION, mapping([CHAR, string("b") + uint(5)]))
FOOTER = section(message.FOOTER, mapping([symbol("crc") + uint(1)]))
BARE = PROPERTIES + APPLICATION


def data(content: bytes) -> bytes:
    return section(message.DATA, values.binary(content))


BODIES = {
    "one data section": (data(b"hello"), b"hello", False),
    "a large one": (data(b"x" * 300), b"x" * 300, False),
    "an empty one": (data(b""), b"", False),
    "two data sections": (data(b"one") + data(b"two"), data(b"one") + data(b"two"), True),
    "a value": (section(message.VALUE, _UUID), section(message.VALUE, _UUID), True),
    "sequences": (section(message.SEQUENCE, sequence([uint(1)])) * 2, None, True),
}


@each_row("name", BODIES)
@each_row("footer", [FOOTER, b""])
def test_a_body_is_taken_out_and_put_back_byte_for_byte(name: str, footer: bytes) -> None:
    sections, body, encoded = BODIES[name]
    whole = HEADER + HOP + ANNOTATIONS + BARE + sections + footer
    block, found, is_encoded = message.split(whole)
    assert (found, is_encoded) == (sections if body is None else body, encoded)
    assert message.is_block(block)
    assert message.join_message(block, found) == whole
    bare = HEADER + BARE + sections + footer
    assert message.join_message(message.split(bare)[0], found) == bare


def test_a_body_that_was_edited_has_its_own_size() -> None:
    block, _, _ = message.split(HEADER + BARE + data(b"hello") + FOOTER)
    assert message.split(message.join_message(block, b"y" * 1000))[1] == b"y" * 1000
    block, _, _ = message.split(HEADER + BARE + section(message.VALUE, uint(1)))
    with pytest.raises(ValueError, match="encoded sections"):
        message.join_message(block, HEADER)


def test_a_replay_is_durable_and_leaves_out_what_the_hop_the_broker_and_the_user_put_there() -> None:
    block, body, _ = message.split(HEADER + HOP + ANNOTATIONS + BARE + data(b"hello") + FOOTER)
    of_the_broker = ("x-opt-deaths", "x-exchange", "x-delivery-count")
    sent = message.to_send(block, of_the_broker.__contains__, {"b": "new"})
    assert message.join_message(sent, body) == (
        section(message.HEADER, sequence([values.TRUE, values.ubyte(7)]))
        + section(message.ANNOTATIONS, mapping([symbol("x-opt-mine") + _UUID]))
        + section(message.PROPERTIES, sequence([_UUID, values.NULL, *NAMED]))
        + section(message.APPLICATION, mapping([CHAR, string("b") + string("new")]))
        + data(b"hello")
        + FOOTER
    )
    alone = message.to_send(message.split(HEADER + data(b""))[0], lambda _name: False, {"n": "v"})
    assert headers_of(message.parts(alone)) == {"n": "v"}


def test_an_edit_changes_annotations_and_properties_where_they_stand() -> None:
    block, _, _ = message.split(HEADER + ANNOTATIONS + BARE + data(b""))
    edited = headers_of(message.parts(message.edit(block, "a".__eq__, {"x-opt-mine": "you", "new": 5})))
    assert edited == {
        "x-delivery-count": "3", "x-opt-deaths": "1", "x-opt-mine": "you", "b": "5", "new": "5",
    }  # fmt: skip


@each_row(("encoded", "shown"), [
    ("83000001a20d47bffa", "2026-11-24T11:19:25.050Z"),
    ("837fffffffffffffff", 2**63 - 1),
    ("827ff8000000000000", "nan"),
    ("a002ff41", "\\xffA"),
    ("730000d800", "\\U0000d800"),
    ("842238000000000005", "0x2238000000000005"),
    ("e0050350010203", [1, 2, 3]),
    ("45", []),
    ("c10802a1016b52544041", None),
    ("005377a10178", {"119": "x"}),
])  # fmt: skip
def test_odd_values_have_a_json_value_or_are_refused(encoded: str, shown: Any) -> None:
    octets = bytes.fromhex(encoded)
    if shown is None:
        with pytest.raises(ValueError, match="cannot be read"):
            values.read(octets)
    else:
        value, end = values.read(octets)
        assert (end, values.span(octets, 0)) == (len(octets), len(octets))
        assert values.to_json(value) == shown or shown == "2026-11-24T11:19:25.050Z"


def test_hostile_values_take_neither_memory_nor_the_stack() -> None:
    large, larger = b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40", b"\xd0\xff\xff\xff\xff\0\0\0\x01"
    for octets in (large, larger, b"\xc0\x7f\x01" * 500, b"\0" * 5000):
        with pytest.raises(ValueError, match="cannot be read"):
            values.read(octets)


def test_no_change_of_some_bytes_of_a_message_is_anything_but_a_value_error() -> None:
    sound = HEADER + HOP + ANNOTATIONS + BARE + data(b"hello") + FOOTER
    chance = random.Random(1)
    for _ in range(600):
        octets = bytearray(sound)
        octets[chance.randrange(len(octets))] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        with contextlib.suppress(ValueError):
            block, body, is_encoded = message.split(bytes(octets))
            parts = message.parts(block)
            headers_of(parts), properties_of(parts, is_encoded)
            message.join_message(message.to_send(block, lambda _name: False, {"n": "v"}), body)


def test_a_history_is_read_whatever_stands_in_it() -> None:
    entry = Value("map", [(Value("symbol", "reason"), Value("symbol", "rejected"))])
    [death] = amqp10.deaths(Value("array", [entry, Value("uint", 1)]))
    assert death.reason == "rejected"
    assert amqp10.deaths(Value("uint", 5)) == ()


@each_row(("value", "before", "since"), [
    (Value("double", 0.5), True, True),
    (Value("double", float("nan")), False, True),
    (Value("list", [Value("float", float("inf"))]), False, True),
    (Value("decimal64", bytes(8)), False, True),
    (Value("map", [(Value("string", "k"), Value("decimal32", bytes(4)))]), False, True),
    (Value("uuid", bytes(16)), False, False),
])  # fmt: skip
def test_older_brokers_carry_no_approximate_number_over_0_9_1(
    value: Value, before: bool, since: bool
) -> None:
    parts = Parts([], [], {}, [(Value("string", "k"), value)])
    assert amqp10.is_carried_by_0_9_1(parts, (4, 0, 5)) == before
    assert amqp10.is_carried_by_0_9_1(parts, (4, 3, 6)) == since


def test_an_encoded_body_is_readable() -> None:
    body = section(message.VALUE, mapping([string("id") + _UUID]))
    assert readable(body, {"type": "amqp-1.0"}) == ({"id": str(UUID)}, "an encoded AMQP 1.0 section")
    assert readable(b"\xff", {"type": "amqp-1.0"}) == (None, "an encoded AMQP 1.0 section")
    assert readable(body, {}) is None
    assert message.parts(b"") == Parts([], [], {}, [])


@each_row("value", [b"\xa1\x02hi", b"\xa0\x02\xff\x00", b"\xb1\x00\x00\x00\x02hi", b"\xb0\x00\x00\x00\x01x"])
@each_row("footer", [b"", b"\x00\x53\x78\xc1\x01\x00"])
def test_a_value_that_is_text_or_bytes_is_taken_out_where_that_is_asked_for(
    value: bytes, footer: bytes
) -> None:
    whole = b"\x00\x53\x70\xc0\x02\x01\x41" + b"\x00\x53\x77" + value + footer
    block, body, is_encoded = message.split(whole, values=True)
    assert (body, is_encoded) == (value[5 if value[0] & 0x10 else 2 :], False)
    assert message.join_message(block, body) == whole
    longer = message.join_message(block, body + b"more")
    assert message.split(longer, values=True)[1] == body + b"more"
    assert message.split(whole)[1:] == (b"\x00\x53\x77" + value, True)


def test_a_count_that_is_set_back_keeps_its_type_and_its_place() -> None:
    count = b"\x71" + (5).to_bytes(4)
    annotations = section(message.ANNOTATIONS, mapping([symbol("retries") + count]))
    own = [string("HandledCount") + count, string("tries") + string("5"), string("note") + string("many")]
    block = annotations + section(message.APPLICATION, mapping(own))
    fixed = dict.fromkeys(("retries", "HandledCount", "tries", "note", "absent"), Inside(zero=((),)))
    parts = message.parts(message.set_back(block, fixed))
    found = {key.value: (value.kind, value.value) for key, value in (*parts.annotations, *parts.application)}
    assert found == {
        "retries": ("int", 0), "HandledCount": ("int", 0), "tries": ("string", "0"),
        "note": ("string", "many"),
    }  # fmt: skip
    assert len(parts.annotations) == 1
