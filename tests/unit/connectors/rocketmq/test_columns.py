"""Stored messages parsed into columns are the messages taken apart one by one."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.connectors.rocketmq.link.message import StoredMessage, encode
from dlq.connectors.rocketmq.link.remoting import ProtocolError
from dlq.connectors.rocketmq.records.columns import StoredColumns, parse_columns

from .test_message import PLAIN, messages


@given(st.lists(messages(), min_size=1, max_size=5))
def test_columns_hold_what_the_messages_hold(written: list[StoredMessage]) -> None:
    found = parse_columns([*map(encode, written)])
    for name in StoredColumns._fields:
        assert [*getattr(found, name)] == [getattr(message, name) for message in written]


@given(st.integers(0, len(encode(PLAIN))), st.binary(max_size=8))
def test_damaged_messages_are_told_and_never_crash(at: int, noise: bytes) -> None:
    data = encode(PLAIN)
    with suppress(ProtocolError):
        parse_columns([data[:at] + noise + data[at + len(noise) :], data])


@pytest.mark.parametrize("size", [48, 88, 90, len(encode(PLAIN)) - 1])
def test_a_message_that_is_cut_short_is_damaged(size: int) -> None:
    with pytest.raises(ProtocolError, match=r"damaged|longer"):
        parse_columns([encode(PLAIN)[:size]])
