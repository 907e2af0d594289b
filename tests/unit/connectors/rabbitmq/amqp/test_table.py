import struct
from collections.abc import Callable
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.rabbitmq.amqp091.codec import alike, table
from dlq.connectors.rabbitmq.amqp091.codec.blocks import shape_of
from dlq.connectors.rabbitmq.amqp091.codec.edits import (
    EMPTY,
    edit,
    header_names,
    short_texts,
    some_headers,
    text_header,
)
from dlq.connectors.rabbitmq.amqp091.codec.table import decode


def stable(block: bytes) -> bytes:
    return table.stable(block, decode(block).headers)


def sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def field(name: bytes, typed_value: bytes) -> bytes:
    return bytes([len(name)]) + name + typed_value


def headers_block(*fields: bytes) -> bytes:
    return b"\x20\x00" + sized(b"".join(fields))


def only_header(typed_value: bytes) -> str:
    return decode(headers_block(field(b"h", typed_value))).headers["h"]


SHOWN = [
    (b"t\x01", "true"),
    (b"t\x00", "false"),
    (b"b\xff", "-1"),
    (b"B\xff", "255"),
    (b"s\xff\xfe", "-2"),
    (b"U\xff\xfe", "-2"),
    (b"u\xff\xfe", "65534"),
    (b"I\xff\xff\xff\xff", "-1"),
    (b"i\xff\xff\xff\xff", "4294967295"),
    (b"l" + struct.pack(">q", -(2**63)), "-9223372036854775808"),
    (b"L" + struct.pack(">q", 7), "7"),
    (b"f" + struct.pack(">f", 0.5), "0.5"),
    (b"d" + struct.pack(">d", 3.14), "3.14"),
    (b"d" + struct.pack(">d", float("nan")), "nan"),
    (b"D\x02" + struct.pack(">i", 150), "1.50"),
    (b"S" + sized("käse".encode()), "käse"),
    (b"S" + sized(b"a\xff\x00"), "a\\xff\x00"),
    (b"x" + sized(b"\xff"), "\\xff"),
    (b"V", "null"),
    (b"T" + struct.pack(">Q", 1_762_053_120), "2025-11-02T03:12:00Z"),
    (b"T" + struct.pack(">Q", 1_762_053_120_123), "2025-11-02T03:12:00.123000Z"),
    (b"T" + struct.pack(">Q", 1_762_053_120_123_456), "2025-11-02T03:12:00.123456Z"),
    (b"T" + struct.pack(">Q", 2**64 - 1), "18446744073709551615"),
    (b"A" + sized(b""), "[]"),
    (b"F" + sized(b""), "{}"),
    (b"A" + sized(b"t\x01V" + b"S" + sized(b"x")), '[true, null, "x"]'),
    (b"F" + sized(field(b"a", b"B\x01") + field(b"a", b"B\x02")), '{"a": 1}'),
]


def test_every_type_of_the_readers_is_shown() -> None:
    assert {value[0] for value, _ in SHOWN} == set(table.READERS)
    assert [only_header(value) for value, _ in SHOWN] == [shown for _, shown in SHOWN]


def test_nesting_without_end_is_cut_instead_of_failing() -> None:
    value = b"V"
    for _ in range(5000):
        value = b"A" + sized(value)
    assert "nested too deeply" in only_header(value)


def listed(items: list[bytes]) -> bytes:
    return b"A" + sized(b"".join(items))


def tabled(items: list[tuple[bytes, bytes]]) -> bytes:
    return b"F" + sized(b"".join(field(*item) for item in items))


binaries = st.binary(max_size=20).map(lambda content: b"x" + sized(content))
names = st.binary(max_size=12)
values = st.recursive(
    st.sampled_from([value for value, _ in SHOWN]) | binaries,
    lambda inner: (
        st.lists(inner, max_size=3).map(listed) | st.lists(st.tuples(names, inner), max_size=3).map(tabled)
    ),
    max_leaves=8,
)
fields = st.lists(st.builds(field, names, values), max_size=6)
tails = st.sampled_from(
    [{}, {"message_id": "m", "delivery_mode": 1}, {"content_type": "a/b", "timestamp": 5}]
)


def block_of(wanted: list[bytes], rest: dict[str, str | int]) -> bytes:
    """A block as pika makes it, with our fields in place of its empty header table (four zeros)."""
    pieces = pika.BasicProperties(headers={}, **rest).encode()
    return b"".join(sized(b"".join(wanted)) if piece == bytes(4) else piece for piece in pieces)


blocks = st.builds(block_of, fields, tails)


@given(fields, tails)
def test_an_edit_of_nothing_changes_nothing(wanted: list[bytes], rest: dict[str, str | int]) -> None:
    block = block_of(wanted, rest)
    decode(block)
    assert edit(block) == block if wanted else decode(edit(block)).headers == {}


@given(fields, fields, tails)
def test_dropping_and_setting_touch_nothing_else(
    before: list[bytes], after: list[bytes], rest: dict[str, str | int]
) -> None:
    ours = field(b"x-death", b"S" + sized(b"old"))
    block = block_of([*before, ours, *after], {**rest, "expiration": "5"})
    edited = edit(block, {"x-death"}.__contains__, {"dlq_replay_lap": 2}, ["expiration"])
    number = b"l" + struct.pack(">q", 2)
    assert edited == block_of([*before, *after, field(b"dlq_replay_lap", number)], rest)


@given(blocks, st.data())
def test_a_block_cut_short_is_refused(block: bytes, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(block) - 1))
    with pytest.raises(ValueError):  # noqa: PT011 - the contract is the type, the text is free
        decode(block[:size])


def is_refused(read: Callable[[bytes], object], block: bytes) -> bool:
    try:
        read(block)
    except ValueError:
        return True
    return False


@given(blocks, st.data())
def test_a_block_is_opened_where_it_can_be_read_and_refused_where_it_cannot(
    whole: bytes, data: st.DataObject
) -> None:
    """What a plan looks at is sent: nobody else reads a block before it goes. What two blocks that are laid
    out alike have taught is no proof of the next."""
    block = bytearray(whole)
    for _ in range(2):
        header_names(bytes(block))
        shape_of.cache_clear()
    block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(block)
    assert is_refused(decode, damaged) is is_refused(header_names, damaged) is is_refused(edit, damaged)
    if not is_refused(decode, damaged):
        properties, headers = decode(damaged)
        assert [*dict.fromkeys(header_names(damaged))] == [*headers]
        assert short_texts(damaged).items() <= properties.items()


def test_a_block_laid_out_as_two_before_it_is_edited_by_its_own_values() -> None:
    def told(text: str) -> bytes:
        value = b"S" + sized(text.encode())
        return block_of([field(b"app", value), field(b"x-death", b"A" + sized(value))], {"message_id": text})

    texts = "one", "two", "six", "ten"
    edited = [decode(edit(told(text), "x-death".__eq__)) for text in texts]
    assert edited == [({"message_id": text}, {"app": text}) for text in texts]


@given(fields, fields, tails)
def test_some_headers_are_a_block_of_their_own(
    before: list[bytes], after: list[bytes], rest: dict[str, str | int]
) -> None:
    ours = field(b"x-death", b"S" + sized(b"told"))
    block = block_of([*before, ours, *after], rest)
    assert some_headers(block, "x-death".__eq__) == headers_block(ours)
    assert some_headers(block, lambda _name: False) == EMPTY


@given(fields, tails)
def test_delivery_counters_are_no_part_of_a_message(wanted: list[bytes], rest: dict[str, str | int]) -> None:
    counters = [field(b"x-delivery-count", b"l" + bytes(7) + b"\3"), field(b"x-acquired-count", b"B\1")]
    assert stable(block_of([*wanted, *counters], rest)) == stable(block_of(wanted, rest))
    assert stable(headers_block(counters[0])) == stable(EMPTY) == EMPTY


@each_row(("told", "count"), [("3", 3), ("-3", 0), ("many", 0), ("²", 0), ("9" * 5000, 0)])
def test_what_a_sender_says_of_deliveries_counts_where_it_is_a_number(told: str, count: int) -> None:
    """A quorum queue counts from the second delivery on; before, such a header is the sender's."""
    block = headers_block(field(b"x-delivery-count", b"S" + sized(told.encode())))
    assert table.delivery_count(block) == count
    assert table.delivery_count(EMPTY) == 0


def test_of_headers_of_one_name_the_first_is_shown_and_a_new_one_replaces_them_all() -> None:
    block = headers_block(field(b"a", b"B\x01"), field(b"b", b"V"), field(b"a", b"B\x02"))
    assert decode(block).headers == {"a": "1", "b": "null"}
    edited = headers_block(field(b"b", b"V"), field(b"a", b"S" + sized("ü".encode())))
    assert edit(block, set_headers={"a": "ü"}) == edited


def test_set_properties_stand_in_the_order_of_the_protocol() -> None:
    block = edit(b"\x00\x80" + b"\x01m", set_properties={"delivery_mode": 2, "content_type": "a"})
    assert block == b"".join(pika.BasicProperties(content_type="a", delivery_mode=2, message_id="m").encode())


@each_row("given", [{"set_properties": {"message_id": "m" * 256}}, {"set_headers": {"n" * 256: "x"}}])
def test_names_and_properties_that_are_too_long_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="longer than the 255 bytes"):
        edit(EMPTY, **given)


def test_one_string_header_can_be_asked_for() -> None:
    ids = field(b"id", b"B\x01"), field(b"id", b"S" + sized(b"abc"))
    block = headers_block(*ids, field(b"z", b"A" + sized(b"?")))
    assert [text_header(block, "id"), text_header(block, "z"), text_header(EMPTY, "id")] == [
        "abc",
        None,
        None,
    ]


ALONE = block_of([field(b"a", b"x" + sized(b"." * 65))], {})
TWO = block_of([field(b"a", b"t\1"), field(b"V" * 66, b"V")], {})
"""As long as the other; the second header's name would pass for values of an array."""


def test_headers_that_lie_where_another_block_has_one_alone_are_seen_each() -> None:
    assert len(ALONE) == len(TWO)
    for _ in range(2):
        header_names(ALONE)
        shape_of.cache_clear()
    assert header_names(TWO) == ("a", "V" * 66)


def of_each(blocks: list[bytes]) -> list[tuple[dict[str, str], dict[str, str]]] | None:
    found = alike.decode(blocks)
    return None if found is None else list(zip(*found, strict=True))


@given(st.lists(st.tuples(st.binary(max_size=9), values, st.text("i", max_size=3)), min_size=1), tails)
def test_blocks_of_the_same_names_show_together_what_each_shows(
    letters: list[tuple[bytes, bytes, str]], rest: dict[str, str | int]
) -> None:
    """But where a header is a string in some of them alone."""
    blocks = [
        block_of([field(b"text", b"S" + sized(text)), field(b"any", value)], {**rest, "app_id": app})
        for text, value, app in letters
    ] * 3
    is_alike = len({value[:1] == b"S" for _, value, _ in letters}) == 1
    assert of_each(blocks) == ([decode(block) for block in blocks] if is_alike else None)


@given(st.lists(blocks, min_size=1, max_size=4))
def test_any_blocks_show_together_what_each_shows_or_are_left_to_be_read_alone(some: list[bytes]) -> None:
    assert of_each(some * 2) in (None, [decode(block) for block in some * 2])


def test_blocks_that_show_not_the_same_or_nothing_are_left_to_be_read_alone() -> None:
    text = b"S" + sized(b"text")
    one, other = (block_of([field(name, text)], {}) for name in (b"a", b"b"))
    twice = block_of([field(b"a", text), field(b"a", text)], {})
    unknown = block_of([field(b"a", b"?" + sized(b""))], {})
    assert of_each([one, one]) == [decode(one)] * 2
    alone = [[one, other], [one, other, one, one], [twice] * 3, [unknown] * 3, [one[:-1]] * 3, [b"\xff"]]
    for blocks in [*alone, [ALONE, TWO, ALONE, ALONE]]:
        for _ in range(3):
            assert of_each(blocks) is None
