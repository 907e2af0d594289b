"""From stored messages to records, in batches that come in columns: which letter each is, and whence."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.rows import each_row

from dlq.archive.schema import to_table
from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq.link.message import StoredMessage, encode, encode_properties
from dlq.connectors.rocketmq.read.outcomes import finished_offsets
from dlq.connectors.rocketmq.records.messages import record_maker
from dlq.core.columns import Columns, Constant, Maps, column, join
from dlq.core.headers.rocketmq_topics import origin_of
from dlq.core.record import COLUMNS, Record
from dlq.core.settings import Source

ORIGINS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"REAL_TOPIC": "%RETRY%pay"}, None),
    ({"RETRY_TOPIC": "orders", "REAL_TOPIC": "%RETRY%pay"}, "orders"),
    ({"RETRY_TOPIC": "%RETRY%pay_orders"}, "orders"),
    ({"RETRY_TOPIC": "%RETRY%payroll_orders"}, "%RETRY%payroll_orders"),
    ({"RETRY_TOPIC": "%RETRY%pay+or_ders"}, "or_ders"),
    ({"RETRY_TOPIC": "%RETRY%pay_"}, None),
    ({"RETRY_TOPIC": "%RETRY%pay"}, None),
    ({"RETRY_TOPIC": "%RETRY%other_orders"}, "%RETRY%other_orders"),
    ({"DLQ_ORIGIN_TOPIC": "told", "RETRY_TOPIC": "orders"}, "told"),
]


@each_row(("properties", "expected"), ORIGINS)
def test_the_origin_is_what_the_properties_prove(properties: dict[str, str], expected: str | None) -> None:
    told = properties.get("DLQ_ORIGIN_TOPIC") or properties.get("RETRY_TOPIC")
    assert origin_of(told, "pay") == expected


HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
BLOCK = {"UNIQ_KEY": "K", "KEYS": "a b", "RETRY_TOPIC": "orders"}


def letters(*changes: dict[str, Any], group: str = "pay") -> Sequence[Record]:
    plain = StoredMessage(
        "%DLQ%pay", 0, 7, 161, 0, 3, 1_795_000_000_000, HOST, 1_795_000_000_500, HOST, 17, 0, 1, b"{}",
        encode_properties(BLOCK),
    )  # fmt: skip
    request = ReadRequest(Source("s", "pay", group=group), "copy", "p")
    return record_maker(request, "5.5.0", "broker-a")([encode(plain._replace(**each)) for each in changes])


def test_messages_of_several_topics_are_one_batch_in_their_order() -> None:
    topics = ["%DLQ%pay", "%DLQ%b", "%DLQ%pay"]
    batch = letters(*({"topic": topic, "queue_offset": i} for i, topic in enumerate(topics)), group="*")
    assert [(r.dead_letter_queue, r.origin_group, r.offset) for r in batch] == [
        ("%DLQ%pay", "pay", 0), ("%DLQ%b", "b", 1), ("%DLQ%pay", "pay", 2)
    ]  # fmt: skip


PARTS: list[list[dict[str, Any]]] = [
    [{}, {"queue_offset": 8}],
    [{"reconsume_times": 3}, {"queue_id": 2, "born_host": bytes(16) + HOST[4:], "sys_flag": 0x10, "flag": 1}],
    [{"sys_flag": 1, "body": b"not zlib"}, {"sys_flag": 0x101, "born_at": -1}],
    [{"properties": b""}, {"properties": b"a\x011\x02"}, {}],
    [{"properties": b""}],
]


def test_batches_in_one_piece_are_their_letters_one_after_the_other() -> None:
    parts = [letters(*changes) for changes in PARTS]
    whole, rows = join(parts), [record for part in parts for record in part]
    assert isinstance(whole, Columns)
    assert list(whole) == list(join([*parts[:2], *map(list, parts[2:])])) == rows
    assert to_table(whole).equals(to_table(rows))
    assert column(whole, "record_id") == [record.record_id for record in rows]
    kept = {type(values) for values in join([parts[0]] * 2).columns}  # type: ignore[attr-defined]
    assert kept >= {Constant, Maps}
    assert join([parts[0]]) is parts[0]
    assert list(join([])) == []


@each_row("names", [[*COLUMNS[:5], "qeue_id"], COLUMNS[:4]])
def test_a_column_that_no_record_has_or_that_each_needs_is_a_fault(names: Sequence[str]) -> None:
    named: Any = {name: ["x"] for name in names}
    with pytest.raises(TypeError):
        Columns.build(1, **named)


@each_row(("body", "offsets"), [
    (b"7", [7]), (b"7,12,", [7, 12]), (b"", []), (b",x,-1, 3 ,", [3]),
    (b"7," + b"9" * 5000 + b",12", [7, 12]),
])  # fmt: skip
def test_op_records_name_offsets_in_both_forms(body: bytes, offsets: list[int]) -> None:
    assert finished_offsets(body) == offsets
