"""From stored messages to records: where a dead letter came from, and which letter it is."""

from hashlib import sha256
from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq.message import StoredMessage, encode, encode_properties
from dlq.connectors.rocketmq.records import record_maker
from dlq.connectors.rocketmq.transaction_outcomes import finished_offsets
from dlq.core.identity import content_id
from dlq.core.record import Record
from dlq.core.rocketmq_topics import origin_of
from dlq.core.settings import Source

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
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


def made(**changes: Any) -> Record:
    block = encode_properties({"UNIQ_KEY": "K", "KEYS": "a  b"})
    plain = StoredMessage(
        "%DLQ%pay", 0, 7, 161, 0, 3, 1_795_000_000_000, HOST, 1_795_000_000_500, HOST, 17, 0, 1, b"x", block
    )
    make = record_maker(ReadRequest(Source("s", "pay", group="pay"), "copy", "p"), "5.5.0", "broker-a")
    return make([encode(plain._replace(**changes))])[0]


def test_fixed_fields_have_javas_names_in_javas_order() -> None:
    assert list(made().headers.items()) == [
        ("msgId", "7F00000100002A9F00000000000000A1"),
        ("queueId", "0"),
        ("queueOffset", "7"),
        ("commitLogOffset", "161"),
        ("preparedTransactionOffset", "0"),
        ("sysFlag", "0"),
        ("flag", "3"),
        ("reconsumeTimes", "17"),
        ("bornTimestamp", "1795000000000"),
        ("bornHost", "127.0.0.1:10911"),
        ("storeTimestamp", "1795000000500"),
        ("storeHost", "127.0.0.1:10911"),
    ]


def test_a_record_id_names_one_place_and_one_content() -> None:
    ids = {
        made(**changes).record_id
        for changes in (
            {},
            {"queue_offset": 8},
            {"body": b"y"},
            {"topic": "%DLQ%b"},
            {"queue_id": 1},
            {"properties": b""},
        )
    }
    assert len(ids) == 6
    assert made().record_id == made().record_id


def test_a_record_id_is_the_content_id_of_place_properties_and_body() -> None:
    record = made()
    parts = b"s\0broker-a\0%DLQ%pay", b"0:7:161", record.raw_properties or b"", sha256(b"x").digest()
    assert record.record_id == content_id(*parts)


@pytest.mark.parametrize("millis", [0, -5, 2**62])
def test_a_time_that_no_calendar_has_stays_in_the_headers_alone(millis: int) -> None:
    record = made(born_at=millis)
    assert (record.published_at, record.headers["bornTimestamp"]) == (None, str(millis))


def test_keys_are_split_at_blanks() -> None:
    assert list(made().keys) == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "offsets"), [(b"7", [7]), (b"7,12,", [7, 12]), (b"", []), (b",x,-1, 3 ,", [3])]
)
def test_op_records_name_offsets_in_both_forms(body: bytes, offsets: list[int]) -> None:
    assert finished_offsets(body) == offsets
