"""The wire readers, given what no broker should send: bounded, and one clear error."""

import contextlib
import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from pika import spec
from support.brokers.hostile import amqp_delivery, amqp_frame, openwire_dispatch, remoting_frame
from support.rows import each_row

from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.commands import MAGIC
from dlq.connectors.activemq.stomp import codec
from dlq.connectors.amqp10.codec import frames as amqp10
from dlq.connectors.net.links import FrameError
from dlq.connectors.rabbitmq.amqp091.codec import frames
from dlq.connectors.rabbitmq.amqp091.codec.frames import HEARTBEAT, encode_method
from dlq.connectors.rocketmq.link import remoting


def greeting(version: int) -> bytes:
    rest = b"\x01" + MAGIC + struct.pack(">i", version) + b"\0"
    return struct.pack(">i", len(rest)) + rest


STOMPED = b"MESSAGE\nsubscription:t\n\nbody\0\nRECEIPT\nreceipt-id:t\n\n\0"
ANSWERED = greeting(11) + struct.pack(">iBi?i", 10, 30, 0, False, 5)
DELIVERED = encode_method(1, spec.Basic.QosOk()) + amqp_delivery(b"", 9) + amqp_frame(3, b"body") * 2
DELIVERED += amqp_frame(3, b"!") + HEARTBEAT + amqp_delivery(b"another")
OUTCOME = amqp10.frame(amqp10.SASL_OUTCOME, [b"\x50\x00"])
TRANSFERRED = amqp10.SASL_HEADER + OUTCOME + amqp10.AMQP_HEADER + amqp10.HEARTBEAT
TRANSFERRED += amqp10.attach("dlq-0", 0, amqp10.RECEIVER, amqp10.terminus(amqp10.RECEIVER, "/queues/q"))
TRANSFERRED += amqp10.transfer(0, 1, b"x", more=False, first=True)
READERS: dict[str, tuple[Callable[[], Any], bytes]] = {
    "amqp": (frames.FrameReader, DELIVERED),
    "amqp 1.0": (amqp10.FrameReader, TRANSFERRED),
    "stomp": (lambda: codec.FrameReader("t"), STOMPED),
    "openwire": (commands.Reader, ANSWERED + openwire_dispatch(b"body")),
    "remoting": (remoting.FrameReader, remoting_frame(3, {"a": "b"}, b"body") * 2),
}


def came(protocol: str, *pieces: bytes) -> list[str]:
    """What a reader makes of them."""
    reader = READERS[protocol][0]()
    told = [one for piece in pieces for one in reader.feed(piece) or ()]
    kept = (getattr(reader, name, []) for name in ("methods", "deliveries", "dispatched"))
    return [repr(one) for some in (told, *kept) for one in some]


@each_row("size", [1, 3, 7, 50, 1000])
@each_row("protocol", READERS)
def test_frames_are_the_same_however_the_bytes_are_cut(protocol: str, size: int) -> None:
    sound = READERS[protocol][1]
    whole = came(protocol, sound)
    assert len(whole) >= 2
    assert came(protocol, *[sound[at : at + size] for at in range(0, len(sound), size)]) == whole


@each_row("protocol", READERS)
def test_no_change_of_some_bytes_is_anything_but_an_error_of_ours(protocol: str) -> None:
    make, sound = READERS[protocol]
    chance = random.Random(protocol)
    for _ in range(1000):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        feed, cut = make().feed, chance.randrange(len(data))
        with contextlib.suppress(FrameError):
            feed(bytes(data[:cut]))
            feed(bytes(data[cut:]))


@each_row(("protocol", "beginning", "words"), [
    ("amqp", struct.pack(">BHIB", 3, 1, 2**31, 0), "a frame of 2147483648 bytes"),
    ("amqp", amqp_delivery(b"", 2**40), "a message of 1099511627776 bytes"),
    ("amqp 1.0", amqp10.SASL_HEADER + struct.pack(">II", 2**31, 0), "a frame of 2147483648 bytes"),
    ("amqp 1.0", b"AMQP\0\0\x09\x01", "does the node speak AMQP 1.0"),
    ("openwire", struct.pack(">i", 2**31 - 1), "no OpenWire"),
    ("remoting", struct.pack(">i", 2**31 - 1), "a frame of 2147483647 bytes"),
    ("remoting", struct.pack(">iI", 2**24, 2**23) + bytes(2**24), "a header of"),
    ("stomp", b"CONNECTED\n" + b"a:b\n" * 2**22, "bytes of headers"),
])  # fmt: skip
def test_a_length_that_is_too_large_is_refused_before_it_is_read(
    protocol: str, beginning: bytes, words: str
) -> None:
    feed = READERS[protocol][0]().feed
    tracemalloc.start()
    with pytest.raises(FrameError, match=words):
        feed(beginning)
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def test_a_stomp_body_of_beginnings_of_frames_takes_time_by_its_length_alone() -> None:
    feed = READERS["stomp"][0]().feed
    feed(b"MESSAGE\nsubscription:t\n\n")
    began = time.process_time()
    for _ in range(4):
        feed(b"\0MESSAGE\n" * (2**18 // 9))
    assert time.process_time() - began < 10


def test_heartbeats_are_no_progress_and_a_half_frame_is() -> None:
    reader = frames.FrameReader()
    reader.feed(HEARTBEAT * 3)
    assert not reader.has_progressed()
    reader.feed(amqp_frame(3, b"x")[:5])
    assert reader.has_progressed()


def test_a_body_in_parts_of_two_bytes_takes_memory_by_its_length_alone() -> None:
    reader, part = frames.FrameReader(), amqp_frame(3, b"xx")
    reader.feed(amqp_delivery(b"", 2**28))
    tracemalloc.start()
    for _ in range(10):
        reader.feed(part * 2000)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reader.unfinished_bytes == 40_000
    assert taken < 2**18
