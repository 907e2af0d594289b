"""The expiry inside an AMQP message goes; everything else stays, byte for byte."""

import pytest
from support.rows import each_row

from dlq.connectors.activemq.republish import without_expiry

HEADER = b"\x00Sp\xc0\x08\x03A@p\x00\x00\x01\x2c"
"""Durable, no priority, ttl 300."""
ANNOTATIONS = b"\x00Sr\xc1)\x04\xa3\x0ex-opt-jms-destQ\x00\xa3\x12x-opt-jms-msg-typeQ\x03"
BEFORE, AFTER = b"\xa1\x04ID:1@\xa1\x09queue://q@@@\xa3\x0atext/plain@", b"\x83\x00\x00\x01\xa1\xfe\x93D\x8b"
EXPIRY = b"\x83\x00\x00\x01\xa1\xfe\x93E\xb7"
BODY = b"\x00Su\xa0\x04late"


def properties(expiry: bytes, wide: bool = True) -> bytes:
    """Ten fields, as Qpid JMS writes them."""
    size = 4 if wide else 1
    items = BEFORE + expiry + AFTER
    begin = b"\x00Ss\xd0" if wide else b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xc0"
    return begin + (len(items) + size).to_bytes(size) + (10).to_bytes(size) + items


@pytest.mark.parametrize("wide", [True, False])
def test_ttl_and_absolute_expiry_time_go_and_all_else_stays(wide: bool) -> None:
    message = HEADER + ANNOTATIONS + properties(EXPIRY, wide) + BODY
    header = b"\x00Sp\xc0\x04\x03A@@"
    assert without_expiry(message) == header + ANNOTATIONS + properties(b"@", wide) + BODY


@each_row(
    "message",
    [
        b"\x00Sp\xc0\x02\x01A" + ANNOTATIONS + b"\x00SsE" + BODY,
        HEADER.replace(b"p\x00\x00\x01\x2c", b"@").replace(b"\x08", b"\x04") + BODY, BODY, b"",
        b"plain bytes", HEADER[:-1], properties(EXPIRY)[:-20], b"\x00Ss\xd0\x00", bytes(range(256)),
    ],
    ids=[
        "shorter lists", "nulls", "a body alone", "nothing", "no AMQP", "cut", "cut lists", "cut sizes",
        "noise",
    ],
)  # fmt: skip
def test_what_has_no_expiry_or_is_no_amqp_message_stays_as_it_is(message: bytes) -> None:
    assert without_expiry(message) == message
