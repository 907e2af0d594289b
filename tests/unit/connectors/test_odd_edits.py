"""Whatever an edit wants of a header, it becomes one, or is refused in words; and no text of any header ends
a plan."""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import pytest
from support.analyzers.letters import record
from support.rows import each_row

from dlq.connectors.activemq import republish as activemq
from dlq.connectors.amqp10.codec import typed as amqp10
from dlq.connectors.amqp10.codec.values import NOTHING, Value
from dlq.connectors.base import Outgoing, SendPreview, Target
from dlq.connectors.kafka import republish as kafka
from dlq.connectors.rabbitmq import republish as rabbitmq
from dlq.connectors.rabbitmq.amqp091.codec import typed as amqp
from dlq.connectors.rocketmq import republish as rocketmq

DEEP: tuple[Any, ...] = tuple(
    reduce(lambda inner, _: hold(inner), range(depth), 1)
    for depth in (33, 200, 900)
    for hold in (lambda inner: [inner], lambda inner: {"x": inner})
)
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**64, 10**400, 1.5, float("inf"), float("nan"), "", "\ud800", "\0", "inf",
    "-inf", "nan", "sNaN", "1e400", "9" * 5000, "0x", "[", "[" * 2000, '{"a":' * 40 + "1" + "}" * 40,
    "-1", "2020-01-01T00:00:00Z", "0001-01-01T00:00:00Z", {}, [], {"": 1}, {"x" * 300: 1}, {"\ud800": 1},
    [None], "ff" * 16,
)  # fmt: skip
FIELDS = {
    **{chr(code): bytes([code]) + bytes(8) for code in b"bBsUuIilLfdTtV"},
    **{chr(code): bytes([code]) + bytes(4) for code in b"SxFA"},
    "D": b"D\1\0\0\0\x0f",
    "D of places": b"D\xff\0\0\0\0",
    "a table": b"F\0\0\0\x04\x01xt\1",
}
VALUES = {"list": [], "map": [], **dict.fromkeys(amqp10.SCALARS, 0)}
BEFORE: dict[str, Callable[[Any], bytes]] = {
    **{f"0-9-1 {kind}": partial(amqp.encode_field, like=like) for kind, like in FIELDS.items()},
    **{f"1.0 {kind}": partial(amqp10.encode_value, like=Value(kind, was)) for kind, was in VALUES.items()},
    "0-9-1 nothing": amqp.encode_field,
    "1.0 nothing": partial(amqp10.encode_value, like=NOTHING),
}


@each_row("encode", BEFORE.values(), ids=list(BEFORE))
def test_an_odd_value_is_encoded_or_refused(encode: Callable[[Any], bytes]) -> None:
    for value in ODD:
        try:
            assert isinstance(encode(value), bytes)
        except ValueError:
            continue


@each_row("encode", BEFORE.values(), ids=list(BEFORE))
def test_what_is_nested_deeper_than_a_reader_looks_is_refused(encode: Callable[[Any], bytes]) -> None:
    for value in DEEP:
        with pytest.raises(ValueError, match="nested deeper than 32 levels"):
            encode(value)


@each_row("encode", [BEFORE["0-9-1 a table"], BEFORE["1.0 map"]])
def test_an_object_with_a_key_twice_is_refused(encode: Callable[[Any], bytes]) -> None:
    assert encode('{"a": 1, "b": 1}')
    with pytest.raises(ValueError, match="its new text is no JSON"):
        encode('{"a": 1, "a": 2}')


PREVIEWS: Mapping[str, tuple[Target, Callable[[Outgoing], SendPreview]]] = {
    "activemq": (Target("queue", "q"), activemq.preview_offline),
    "activemq by AMQP": (Target("queue", "q"), activemq.preview_by_amqp),
    "kafka": (Target("topic", "t"), kafka.preview_offline),
    "rabbitmq": (Target("queue", "q"), rabbitmq.preview),
    "rocketmq": (Target("topic", "t"), rocketmq.preview),
}
NAMES = (
    "flag", "priority", "expires", "expiration", "timestamp", "persistent", "type", "correlation-id",
    "headers", "content-length", "AMQ_SCHEDULED_DELAY", "partition", "DELAY", "RECONSUME_TIME",
    "x-death", "sysFlag",
)  # fmt: skip
TEXTS = ("abc", "", "9" * 5_000, "\uff12", "1e999", "\x02", "-")


@each_row("way", PREVIEWS)
@each_row("where", ["headers", "properties"])
def test_no_text_of_a_header_ends_a_plan(way: str, where: str) -> None:
    target, preview = PREVIEWS[way]
    for name in NAMES:
        for odd in TEXTS:
            letter = record(broker_kind=way.partition(" ")[0], **{where: {name: odd}})
            assert isinstance(preview(Outgoing(0, letter, target, {"dlq_replay_id": "0" * 32})), SendPreview)
