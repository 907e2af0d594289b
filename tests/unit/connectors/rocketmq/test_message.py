"""Stored messages of RocketMQ: what goes in comes out, byte for byte."""

import contextlib
import struct
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.rocketmq.link.message import (
    BATCH,
    StoredMessage,
    decode,
    encode,
    encode_properties,
    expand,
    host_name,
    parse_properties,
)
from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.records.bodies import plain_body

V4 = b"\x7f\0\0\1" + struct.pack(">i", 10911)
V6 = bytes(15) + b"\1" + struct.pack(">i", 10911)
PLAIN = StoredMessage(
    "orders", 3, 17, 4096, 0, 7, 1700, V4, 1800, V4, 2, 0, 99, b"ab\0cd\xff", b"KEYS\x01k 1\x02"
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topics = st.text(max_size=60) | st.text("x", min_size=128, max_size=255)


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    sys_flag = draw(int32) & 0x7FFFFFFF
    born, stored = V6 if sys_flag & 0x10 else V4, V6 if sys_flag & 0x20 else V4
    return StoredMessage(
        draw(topics), draw(int32), draw(int64), draw(int64), sys_flag, draw(int32), draw(int64), born,
        draw(int64), stored, draw(int32), draw(int64), draw(int32), draw(st.binary()),
        draw(st.binary(max_size=500)),
    )  # fmt: skip


@given(st.lists(messages(), max_size=4))
def test_decode_is_the_inverse_of_encode(written: list[StoredMessage]) -> None:
    assert list(decode(b"".join(map(encode, written)))) == written


def test_a_filler_is_skipped() -> None:
    filler = struct.pack(">iI", 20, 0xCBD43194) + bytes(12)
    assert list(decode(encode(PLAIN) + filler + encode(PLAIN))) == [PLAIN, PLAIN]


@each_row("cut", range(1, len(encode(PLAIN))))
def test_a_message_cut_anywhere_is_a_protocol_error(cut: int) -> None:
    with pytest.raises(ProtocolError):
        list(decode(encode(PLAIN)[:cut]))


def test_a_message_that_claims_more_than_its_size_is_a_protocol_error() -> None:
    data = bytearray(encode(PLAIN))
    data[84:88] = struct.pack(">i", 10**6)
    with pytest.raises(ProtocolError):
        list(decode(bytes(data)))
    with pytest.raises(ProtocolError):
        list(decode(struct.pack(">iI", 40, 0x12345678) + bytes(32)))


@given(st.binary(max_size=400), st.integers(0, 120))
def test_any_damage_gives_messages_or_a_protocol_error(noise: bytes, at: int) -> None:
    data = encode(PLAIN)
    with contextlib.suppress(ProtocolError):
        assert all(isinstance(m, StoredMessage) for m in decode(data[:at] + noise + data[at:]))


def inner(body: bytes, properties: bytes, flag: int) -> bytes:
    size = 20 + len(body) + 2 + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 5, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


@pytest.mark.parametrize("compressed", [False, True])
def test_an_inner_batch_becomes_its_messages(compressed: bool) -> None:
    packed = inner(b"one\0", b"KEYS\x01a\x02", 1) + inner(b"", b"", 2)
    body, sys_flag = (zlib.compress(packed), BATCH | 0x301) if compressed else (packed, BATCH)
    first, second = expand(PLAIN._replace(body=body, sys_flag=sys_flag))
    assert (first.body, first.properties, first.flag, first.queue_offset, first.sys_flag) == (
        b"one\0", b"KEYS\x01a\x02", 1, 17, 0,
    )  # fmt: skip
    assert (second.body, second.flag, second.queue_offset) == (b"", 2, 18)
    assert second.topic == PLAIN.topic


def test_a_message_that_is_no_batch_stays_as_it_is() -> None:
    assert expand(PLAIN) == [PLAIN]


@given(st.binary(max_size=60))
def test_a_damaged_batch_is_a_protocol_error_not_a_loop(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(expand(PLAIN._replace(body=body, sys_flag=BATCH))) <= len(body)


BIG = b"compress me " * 1000


@pytest.mark.parametrize(("sys_flag", "stored"), [
    (0, BIG), (0x1, zlib.compress(BIG)), (0x301, zlib.compress(BIG)), (0x101, lz4.frame.compress(BIG)),
    (0x201, zstandard.compress(BIG)),
])  # fmt: skip
def test_every_compression_is_undone(sys_flag: int, stored: bytes) -> None:
    assert plain_body(stored, sys_flag) == BIG
    if sys_flag:
        with pytest.raises(ProtocolError):
            plain_body(stored, sys_flag, limit=100)


@each_row("sys_flag", [0x1, 0x101, 0x201, 0x301, 0x701])
@each_row("body", [b"", b"no such thing", zlib.compress(BIG)[:30]])
def test_a_damaged_compressed_body_is_a_protocol_error(sys_flag: int, body: bytes) -> None:
    if sys_flag == 0x201 and body == b"":
        assert plain_body(body, sys_flag) == b""
        return
    with pytest.raises(ProtocolError):
        plain_body(body, sys_flag)


def test_properties_keep_empty_values_and_the_last_of_two() -> None:
    assert parse_properties(b"a\x011\x02b\x01\x02a\x012") == {"a": "2", "b": ""}
    assert parse_properties(b"k\x01v\x01w\x02noise") == {"k": "v\x01w"}
    assert parse_properties(b"k\x01\xff\x02") == {"k": "\\xff"}


names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(names, names))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties)) == properties


def test_a_host_is_named_by_its_address_and_port() -> None:
    assert host_name(V4) == "127.0.0.1:10911"
    assert host_name(V6) == "[::1]:10911"
