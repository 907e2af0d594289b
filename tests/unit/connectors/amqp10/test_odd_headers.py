"""Headers of AMQP 1.0 for which JSON has no word (arrays, described values, what nests them) stay as they are
through an export and an import and beside an edit; an edit of themselves is refused by name."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from support.rows import each_row

from dlq.connectors.activemq.records import amqp10
from dlq.connectors.activemq.records.frames import Place
from dlq.connectors.amqp10.codec import values
from dlq.connectors.amqp10.codec.message import ANNOTATIONS, APPLICATION, DATA, PROPERTIES
from dlq.connectors.amqp10.codec.values import NULL, described_value, long, mapping, string, symbol
from dlq.connectors.base import ReadRequest
from dlq.connectors.jsonl.format import line_of, parse_line, record_of
from dlq.connectors.rabbitmq.records import amqp10 as rabbitmq_records
from dlq.core.errors import UsageError
from dlq.core.record import Record
from dlq.core.settings import Source
from dlq.replay.plans import edits

INTS = b"\xe0\x04\x02\x50\x01\x02"
MONEY = b"\x00" + symbol("shop:money") + long(7)
MONEYS = b"\xe0" + bytes([1 + len(MONEY)]) + b"\x01" + MONEY
ODD = {
    "array": INTS,
    "array of described": MONEYS,
    "described": MONEY,
    "described by a number": described_value(0x99, mapping([string("a") + INTS])),
    "list of arrays": values.sequence_of_all([INTS, NULL, MONEY]),
    "map of described": mapping([string("price") + MONEY]),
    "described as a key": mapping([MONEY + long(1)]),
}
PLACE = Place("dead", "artemis", "2.56.0", "node")
Maker = Callable[[ReadRequest], Callable[[bytes], Record]]
MAKERS: list[Maker] = [
    partial(rabbitmq_records.record_maker, broker_version="4.3.6"),
    partial(amqp10.record_maker, place=PLACE),
]
both_brokers = pytest.mark.parametrize("maker", MAKERS, ids=["rabbitmq", "artemis"])


def letter(maker: Maker) -> Record:
    application = [string(name) + value for name, value in {**ODD, "plain": string("a")}.items()]
    encoded = (
        described_value(ANNOTATIONS, mapping([symbol("x-odd") + MONEY]))
        + described_value(PROPERTIES, values.sequence([string("id-1")]))
        + described_value(APPLICATION, mapping(application))
        + described_value(DATA, values.binary(b"an order"))
    )
    return maker(ReadRequest(Source("dead", "shop", queue="dead"), "drain", "pull-1"))(encoded)


def edited(record: Record, **headers: object) -> Record:
    line = line_of(record) | {"headers": {**line_of(record)["headers"], **headers}}
    return edits.parse([json.dumps(line).encode()], "letters.jsonl").apply(record)


@both_brokers
def test_an_export_and_an_import_change_nothing(maker: Maker) -> None:
    record, pull = letter(maker), {"captured_at": None, "pull_id": "", "mode": ""}
    line = parse_line(json.dumps(line_of(record)))
    again = record_of(line, record.source, record.broker, "1", lambda *_: None)
    assert again._replace(**pull) == record._replace(**pull)


@both_brokers
def test_an_edit_of_another_header_leaves_them_byte_for_byte_and_one_may_become_void(
    maker: Maker,
) -> None:
    record = letter(maker)
    sent = edited(record, plain="b").raw_properties or b""
    assert string("plain") + string("b") in sent
    assert symbol("x-odd") + MONEY in sent
    assert all(string(name) + value in sent for name, value in ODD.items())
    assert string("array") + NULL in (edited(record, array=None).raw_properties or b"")


@both_brokers
@each_row(("name", "value"), [
    *((name, value) for name in ("x-odd", *ODD) for value in ("text", [1, 2, 3])),
    ("map of described", {"price": 5}),
])  # fmt: skip
def test_an_edit_of_one_is_refused_by_its_name(maker: Maker, name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"header '{name}': "):
        edited(letter(maker), **{name: value})
