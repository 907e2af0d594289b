"""Batches that come in columns hold the same letters as rows do."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.archive.schema import to_table
from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq.link.message import StoredMessage, encode, encode_properties, parse_properties
from dlq.connectors.rocketmq.records.columns import parse_blocks
from dlq.connectors.rocketmq.records.messages import record_maker
from dlq.core.columns import Columns, Constant, Maps, collapse, column, join, map_column
from dlq.core.record import COLUMNS, Record
from dlq.core.settings import Source

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
BLOCK = {"UNIQ_KEY": "K", "KEYS": "a b", "RETRY_TOPIC": "orders"}


def letters(*changes: dict[str, Any], key: str = "message_id") -> Columns:
    plain = StoredMessage(
        "%DLQ%pay", 0, 7, 161, 0, 3, 1_795_000_000_000, HOST, 1_795_000_000_500, HOST, 17, 0, 1, b"{}",
        encode_properties(BLOCK),
    )  # fmt: skip
    request = ReadRequest(Source("s", "pay", group="pay", key=key), "copy", "p")
    made = record_maker(request, "5.5.0", "broker-a")([encode(plain._replace(**each)) for each in changes])
    assert isinstance(made, Columns)
    return made


BATCHES: list[list[dict[str, Any]]] = [
    [{}, {"queue_offset": 8}],
    [{"reconsume_times": 3}, {"queue_id": 2, "born_host": bytes(16) + HOST[4:], "sys_flag": 0x10, "flag": 1}],
    [{"properties": b""}, {"properties": b"a\x011\x02"}, {}],
    [{"properties": b""}],
    [{"sys_flag": 1, "body": b"not zlib"}, {"sys_flag": 0x101, "born_at": -1}],
]


@pytest.mark.parametrize("changes", BATCHES)
def test_the_table_of_columns_is_the_table_of_their_rows(changes: list[dict[str, Any]]) -> None:
    batch = letters(*changes)
    assert to_table(batch).equals(to_table(list(batch)))
    assert (
        [record.record_id for record in batch]
        == column(batch, "record_id")
        == column(list(batch), "record_id")
    )
    assert [type(record) for record in batch[:]] == [Record] * len(changes)


def test_messages_of_several_topics_are_one_batch_in_their_order() -> None:
    topics = ["%DLQ%pay", "%DLQ%b", "%DLQ%pay"]
    plain = StoredMessage("", 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0, 0, b"", b"")
    make = record_maker(ReadRequest(Source("s", "pay", group="*"), "copy", "p"), "5.5.0", "broker-a")
    batch = make([encode(plain._replace(topic=topic, queue_offset=i)) for i, topic in enumerate(topics)])
    assert [(r.dead_letter_queue, r.origin_group, r.offset) for r in batch] == [
        ("%DLQ%pay", "pay", 0), ("%DLQ%b", "b", 1), ("%DLQ%pay", "pay", 2)
    ]  # fmt: skip
    assert list(make([])) == []


@pytest.mark.parametrize(
    ("key", "expected"), [("message_id", "K"), ("property:KEYS", "a b"), ("header:queueOffset", "7")]
)
def test_the_business_key_is_read_of_columns_too(key: str, expected: str) -> None:
    assert letters({}, key=key)[0].key == expected


pieces = st.lists(
    st.sampled_from([b"a", b"b", b"\1", b"\2", b"a\x011\x02", b"b\x012\x02", b"\xff"]), max_size=6
)


@given(st.lists(pieces.map(b"".join), min_size=1, max_size=4))
def test_blocks_parsed_together_are_the_blocks_parsed_one_by_one(blocks: list[bytes]) -> None:
    assert [list(found.items()) for found in parse_blocks(blocks)] == [
        list(parse_properties(block).items()) for block in blocks
    ]


def test_what_is_the_same_is_kept_once() -> None:
    assert isinstance(parse_blocks([encode_properties(BLOCK)] * 3), Maps)
    assert isinstance(map_column(str, collapse((7, 7))), Constant)
    assert list(map_column(str, collapse((7, 7)))) == ["7", "7"]
    assert list(map_column(str, collapse((7, 8)))) == ["7", "8"]


def test_batches_in_one_piece_are_their_letters_one_after_the_other() -> None:
    parts = [letters({}, {"queue_offset": 8}), letters({"queue_id": 2}), letters({"properties": b""})]
    whole = join(parts)
    assert isinstance(whole, Columns)
    rows = [record for part in parts for record in part]
    assert list(whole) == list(join([*parts[:2], list(parts[2])])) == rows
    assert to_table(whole).equals(to_table(rows))
    kept = {type(values) for values in join(parts[:2]).columns}  # type: ignore[attr-defined]
    assert kept >= {Constant, Maps}
    assert join([parts[0]]) is parts[0]
    assert list(join([])) == []


@pytest.mark.parametrize("names", [[*COLUMNS[:5], "qeue_id"], COLUMNS[:4]])
def test_a_column_that_no_record_has_or_that_each_needs_is_a_fault(names: Sequence[str]) -> None:
    named: Any = {name: ["x"] for name in names}
    with pytest.raises(TypeError):
        Columns.build(1, **named)


def test_a_column_that_is_not_given_holds_the_fields_default() -> None:
    named: Any = {name: ["x"] for name in COLUMNS[:5]}
    [made] = Columns.build(1, **named)
    assert made == Record("x", "x", "x", "x", "x")
