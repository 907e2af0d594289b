"""Frames come in pieces of any size; deliveries come out whole and unchanged."""

import struct

import pytest
from pika import spec

from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.amqp091.codec.frames import (
    HEARTBEAT,
    Delivery,
    FrameError,
    FrameReader,
    encode_method,
)
from dlq.connectors.rabbitmq.records.deliveries import history, record_maker
from dlq.core.record import Death, Record
from dlq.core.settings import Source


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def deliver(tag: int, exchange: bytes = b"shop", key: bytes = b"order", redelivered: bool = False) -> bytes:
    names = bytes((len(exchange),)) + exchange + bytes((len(key),)) + key
    return struct.pack(">HH", 60, 60) + b"\x05dlq-1" + struct.pack(">Q?", tag, redelivered) + names


def content(block: bytes, body: bytes, piece: int = 7) -> bytes:
    header = frame(2, struct.pack(">HHQ", 60, 0, len(body)) + block)
    return header + b"".join(frame(3, body[i : i + piece]) for i in range(0, len(body), piece))


BLOCK = b"\0\0" + bytes(200_000)
"""More than fits a frame: a content header may be longer."""


def test_only_a_content_header_may_be_longer_than_a_frame() -> None:
    reader = FrameReader()
    stream = frame(1, deliver(1)) + content(BLOCK, b"body") + HEARTBEAT
    for at in range(0, len(stream), 1000):
        reader.feed(stream[at : at + 1000])
    assert reader.take(2) == [Delivery(deliver(1), BLOCK, b"body")]
    for kind in (1, 3):
        with pytest.raises(FrameError, match="more than was agreed on"):
            FrameReader().feed(frame(kind, BLOCK))


def test_other_methods_are_decoded_and_kept_in_order() -> None:
    reader = FrameReader()
    reader.feed(
        encode_method(0, spec.Connection.OpenOk())
        + encode_method(1, spec.Channel.Close(404, "NOT_FOUND", 50, 10))
    )
    assert [channel for channel, _ in reader.methods] == [0, 1]
    assert reader.methods[1][1].reply_text == "NOT_FOUND"


def record(block: bytes = b"\0\0", body: bytes = b"", method: bytes = b"") -> Record:
    request = ReadRequest(Source("orders", "shop", queue="orders.dlq"), "copy", "pull-1")
    return record_maker(request, "4.3.6")([Delivery(method or deliver(1), block, body)])[0]


def test_a_damaged_property_block_is_kept_as_it_is() -> None:
    damaged = record(b"\x20\0\0\0\0\x09short")
    assert (damaged.raw_properties, damaged.headers) == (b"\x20\0\0\0\0\x09short", {})


def test_the_history_tells_the_first_place_and_the_times() -> None:
    past = history(
        '[{"reason": "expired", "queue": "wait", "exchange": "", "count": 2, "time": "2026-11-02T03:12:09Z"},'
        ' {"reason": "rejected", "queue": "work", "exchange": "shop", "routing-keys": ["order", "cc"],'
        ' "count": 3, "time": "2026-11-02T03:12:08Z"}]'
    )
    assert [death.reason for death in past.deaths] == ["expired", "rejected"]
    assert (past.queue, past.exchange, past.routing_key, past.rejections) == ("work", "shop", "order", 3)
    assert (past.last or 0) - (past.first or 0) == 1_000_000


def test_a_history_that_is_missing_or_odd_says_nothing() -> None:
    for text in (None, "", "System.Object[]", "null"):
        assert history(text) == ((), None, None, None, None, None, None)
    assert history('[{"reason": "rejected"}]').deaths == (Death(reason="rejected"),)
