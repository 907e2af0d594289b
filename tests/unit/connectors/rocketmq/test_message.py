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
from dlq.connectors.rocketmq.records.columns import StoredColumns, parse_blocks, parse_columns

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


@given(st.lists(messages(), min_size=1, max_size=5))
def test_decode_is_the_inverse_of_encode_and_columns_hold_what_messages_hold(
    written: list[StoredMessage],
) -> None:
    encoded = [*map(encode, written)]
    assert list(decode(b"".join(encoded))) == written
    found = parse_columns(encoded)
    for name in StoredColumns._fields:
        assert [*getattr(found, name)] == [getattr(message, name) for message in written]


def test_a_filler_is_skipped() -> None:
    filler = struct.pack(">iI", 20, 0xCBD43194) + bytes(12)
    assert list(decode(encode(PLAIN) + filler + encode(PLAIN))) == [PLAIN, PLAIN]


DATA = encode(PLAIN)
DAMAGED = [
    *(DATA[:cut] for cut in range(1, len(DATA))),
    DATA[:84] + struct.pack(">i", 10**6) + DATA[88:],
    struct.pack(">iI", 40, 0x12345678) + bytes(32),
]


@each_row("data", DAMAGED)
def test_a_message_that_is_cut_or_claims_more_than_its_size_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(decode(data))


@each_row("size", [48, 88, 90, len(DATA) - 1])
def test_a_message_that_is_cut_short_has_no_columns(size: int) -> None:
    with pytest.raises(ProtocolError, match=r"damaged|longer"):
        parse_columns([DATA[:size]])


@given(st.binary(max_size=400), st.integers(0, len(DATA)), st.booleans())
def test_any_damage_gives_messages_or_a_protocol_error(noise: bytes, at: int, inserted: bool) -> None:
    data = DATA[:at] + noise + DATA[at if inserted else at + len(noise) :]
    with contextlib.suppress(ProtocolError):
        assert all(isinstance(m, StoredMessage) for m in decode(data))
    with contextlib.suppress(ProtocolError):
        parse_columns([data, DATA])


def inner(body: bytes, properties: bytes, flag: int) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 5, flag, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@each_row("compressed", [False, True])
def test_an_inner_batch_becomes_its_messages(compressed: bool) -> None:
    packed = inner(b"one\0", b"KEYS\x01a\x02", 1) + inner(b"", b"", 2)
    body, sys_flag = (zlib.compress(packed), BATCH | 0x301) if compressed else (packed, BATCH)
    usual = PLAIN._replace(sys_flag=0, properties=b"", body=b"")
    first, second = expand(PLAIN._replace(body=body, sys_flag=sys_flag))
    told = {name: getattr(first, name) for name in ("body", "properties", "flag", "queue_offset", "sys_flag")}
    assert [*told.values()] == [b"one\0", b"KEYS\x01a\x02", 1, 17, 0]
    assert second == usual._replace(flag=2, queue_offset=18, body_crc=second.body_crc)
    assert expand(PLAIN) == [PLAIN]


@given(st.binary(max_size=60))
def test_a_damaged_batch_is_a_protocol_error_not_a_loop(body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(expand(PLAIN._replace(body=body, sys_flag=BATCH))) <= len(body)


BIG = b"compress me " * 1000


@each_row(("sys_flag", "stored"), [
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
pieces = st.lists(
    st.sampled_from([b"a", b"b", b"\1", b"\2", b"a\x011\x02", b"b\x012\x02", b"\xff"]), max_size=6
)


@given(st.dictionaries(names, names))
def test_properties_survive_a_round_trip(properties: dict[str, str]) -> None:
    assert parse_properties(encode_properties(properties)) == properties


@given(st.lists(pieces.map(b"".join), min_size=1, max_size=4))
def test_blocks_parsed_together_are_the_blocks_parsed_one_by_one(blocks: list[bytes]) -> None:
    alone = [[*parse_properties(block).items()] for block in blocks]
    assert [[*found.items()] for found in parse_blocks(blocks)] == alone


def test_a_host_is_named_by_its_address_and_port() -> None:
    assert host_name(V4) == "127.0.0.1:10911"
    assert host_name(V6) == "[::1]:10911"
