"""The block that holds a Kafka record beside its value."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.connectors.kafka.records.raw import RawRecord, decode, encode

HEADERS = [("a", b"1"), ("nul", None), ("empty", b""), ("a", b"2"), ("bin", b"\xff\x00"), ("", b"x")]
bytes_or_null = st.none() | st.binary(max_size=20)
records = st.builds(
    RawRecord,
    key=bytes_or_null,
    headers=st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=4),
    timestamp=st.integers(-1, 2**62),
    is_log_append=st.booleans(),
    is_null=st.booleans(),
    original=st.none(),
)


@given(records, st.none() | records)
def test_what_is_encoded_is_decoded(record: RawRecord, original: RawRecord | None) -> None:
    record = record._replace(original=original)
    assert decode(encode(record)) == record


@pytest.mark.parametrize("bad", ["cut", "trailing", "another format", "empty"])
def test_anything_else_is_refused(bad: str) -> None:
    block = encode(RawRecord(b"k", HEADERS))
    wrong = {"trailing": block + b"\0", "another format": b"\2" + block[1:], "empty": b""}
    blocks = [block[:at] for at in range(len(block))] if bad == "cut" else [wrong[bad]]
    for one in blocks:
        with pytest.raises(ValueError, match="block of a Kafka record"):
            decode(one)


def test_a_record_laid_out_as_two_before_it_is_decoded_by_its_own_values() -> None:
    told = [
        RawRecord(key, [("a", text), ("b", b""), ("a", text)], number)
        for key in (b"k", None)
        for number, text in enumerate((b"one", b"two", b"six", b"ten"))
    ]
    assert [decode(encode(record)) for record in told] == told


def test_no_octet_of_a_record_is_overlooked_because_those_before_it_were_laid_out_alike() -> None:
    plain = encode(RawRecord(b"key", [("name", b"value"), ("n", b"")]))
    shown = [decode(plain), decode(plain), decode(plain)][2]
    for place in range(len(plain)):
        other = plain[:place] + bytes([plain[place] ^ 1]) + plain[place + 1 :]
        with suppress(ValueError):
            assert decode(other) != shown
    null = encode(RawRecord(b"key", [("name", b"value"), ("n", None)]))
    assert decode(null).headers == [("name", b"value"), ("n", None)]
