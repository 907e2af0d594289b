"""From stored messages to records: where a dead letter came from, and which letter it is."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.base import ReadRequest
from dlq.connectors.rocketmq.link.message import StoredMessage, encode, encode_properties
from dlq.connectors.rocketmq.read.outcomes import finished_offsets
from dlq.connectors.rocketmq.records.messages import record_maker
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


def test_a_record_id_names_one_place_and_one_content() -> None:
    ids = {
        made(**changes).record_id
        for changes in (
            {}, {"queue_offset": 8}, {"body": b"y"}, {"topic": "%DLQ%b"}, {"queue_id": 1},
            {"properties": b""},
        )
    }  # fmt: skip
    assert len(ids) == 6
    assert made().record_id == made().record_id


@pytest.mark.parametrize("millis", [0, -5, 2**62])
def test_a_time_that_no_calendar_has_stays_in_the_headers_alone(millis: int) -> None:
    record = made(born_at=millis)
    assert (record.published_at, record.headers["bornTimestamp"]) == (None, str(millis))


@pytest.mark.parametrize(
    ("body", "offsets"), [(b"7", [7]), (b"7,12,", [7, 12]), (b"", []), (b",x,-1, 3 ,", [3])]
)
def test_op_records_name_offsets_in_both_forms(body: bytes, offsets: list[int]) -> None:
    assert finished_offsets(body) == offsets
