"""Letters that are made into records together are the letters that each is alone."""

from typing import Any

from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from dlq.archive.schema import to_table
from dlq.connectors.base import ReadRequest
from dlq.connectors.kafka.plugin.description import KafkaSource
from dlq.connectors.kafka.records.columns import Original, letters_of
from dlq.connectors.kafka.records.messages import record_maker
from dlq.connectors.kafka.records.raw import RawRecord, decode
from dlq.core.columns import Columns
from dlq.core.record import Record

SPRING = [
    ("traceparent", b"00-4bf9-01"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\1"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\7"),
    ("kafka_dlt-original-timestamp", b"\0\0\1\x9a\0\0\0\0"),
    ("kafka_dlt-original-consumer-group", b"pay"),
]
CONNECT = [("__connect.errors.topic", b"bills"), ("__connect.errors.partition", b"2")]
NAMES = [
    *(name for name, _ in SPRING + CONNECT),
    "a", "", "\udcff", "%d", "content-type", "contentType", "__dlq.errors.offset",
    "__dlq.errors.delivery.count", "dead-letter-topic", "x-original-topic",
    "wolverine-kafka-retry-source", "original-destination",
]  # fmt: skip
VALUES = [
    None, b"", b"1", b"orders", b"dlt", b"\xff", b"\0\0\0\0\0\0\0\7", b"kafka://topic/orders", b"9" * 30,
    b"100 %b",
]  # fmt: skip


def message(number: int, **changes: Any) -> Message:
    plain = {"topic": "dlt", "partition": 0, "offset": number, "key": b"k%d" % number, "value": b"v"}
    return Message(**{**plain, "headers": SPRING, "timestamp": (1, 1_795_000_000_000 + number), **changes})


def made(
    messages: list[Message], originals: dict[int, Original] | None = None, key: str = "message_id"
) -> Columns:
    request = ReadRequest(KafkaSource("s", "b", topic="dlt", key=key), "drain", "p")
    make = record_maker(request, "cluster", {"dlt": "id1", "error.orders.g": "id2"})
    batch = make(letters_of(messages, [message.headers() or () for message in messages]), originals or {})
    assert isinstance(batch, Columns)
    return batch


def plainly(record: Record) -> dict[str, Any]:
    maps = {name: list(getattr(record, name).items()) for name in ("headers", "properties")}
    return {**record._asdict(), **maps, "captured_at": None}


headers = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)
contents = st.fixed_dictionaries({
    "topic": st.sampled_from(["dlt", "error.orders.g"]),
    "partition": st.integers(0, 1),
    "key": st.sampled_from([None, b"", b"k", b"\xff"]),
    "value": st.sampled_from([None, b"", b'{"id": 1}', b"x" * 3000]),
    "timestamp": st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([-1, 0, 5, 253_402_300_800_000])),
})  # fmt: skip
raws = st.builds(
    RawRecord, st.sampled_from([None, b"o"]), headers, st.sampled_from([-1, 3]), st.booleans(), st.booleans(),
    st.none(),
)  # fmt: skip
values = st.sampled_from([None, b"", b"original"])
originals = st.none() | st.builds(Original, st.none() | raws, values, st.just("gone"))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(contents, originals), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["message_id", "header:a", "property:key", "json:$.id"]),
)
def test_letters_of_one_batch_are_those_of_batches_of_one(
    drawn: list[tuple[dict[str, Any], Original | None]], data: st.DataObject, key: str
) -> None:
    names = data.draw(st.lists(st.sampled_from(NAMES), max_size=5))
    like_the_first = st.tuples(*(st.tuples(st.just(name), st.sampled_from(VALUES)) for name in names))
    told = [data.draw(like_the_first.map(list) | headers) for _ in drawn]
    messages = [
        message(number, **content, headers=of_one)
        for number, ((content, _), of_one) in enumerate(zip(drawn, told, strict=True))
    ]
    found = {number: original for number, (_, original) in enumerate(drawn) if original is not None}
    alone = [
        made([one], {0: found[number]} if number in found else {}, key)[0]
        for number, one in enumerate(messages)
    ]
    together = made(messages, found, key)
    assert [*map(plainly, together)] == [*map(plainly, alone)]
    assert [decode(record.raw_properties or b"").headers for record in together] == told
    assert to_table(together).equals(to_table(list(together)))
