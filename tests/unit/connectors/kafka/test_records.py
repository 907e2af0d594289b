"""Records of Kafka: the block beside the value, the headers as texts, and lines of strangers."""

import base64
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.analyzers.letters import imported
from support.rows import each_row

from dlq.connectors.kafka.records.header_texts import bytes_of, edit, text_of, texts_of
from dlq.connectors.kafka.records.raw import VALUE_WAS_NULL, Headers, RawRecord, decode, encode
from dlq.core.errors import UsageError
from dlq.core.record import Record

ODD: Headers = [("a", b"1"), ("nul", None), ("empty", b""), ("a", b"2"), ("bin", b"\xff\x00"), ("", b"x")]
bytes_or_null = st.none() | st.binary(max_size=20)
records = st.builds(
    RawRecord, key=bytes_or_null, headers=st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=4),
    timestamp=st.integers(-1, 2**62), is_log_append=st.booleans(), is_null=st.booleans(), original=st.none(),
)  # fmt: skip


@given(records, st.none() | records)
def test_what_is_encoded_is_decoded(record: RawRecord, original: RawRecord | None) -> None:
    record = record._replace(original=original)
    assert decode(encode(record)) == record


def test_anything_else_is_refused() -> None:
    block = encode(RawRecord(b"k", ODD))
    for bad in (block + b"\0", b"\2" + block[1:], *(block[:at] for at in range(len(block)))):
        with pytest.raises(ValueError, match="block of a Kafka record"):
            decode(bad)


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


@each_row(("value", "text"), [
    (b"plain", "plain"), ("é 世".encode(), "é 世"),
    (b"java.lang.X: no\n\tat a.b(C.java:1)\r\n", "java.lang.X: no\n\tat a.b(C.java:1)\r\n"), (b"", ""),
    (None, ""), (b"\xff\x00", "base64:/wA="), (b"a\x00b", "base64:YQBi"),
    (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"), (b"\x07\x1b[2J", "base64:BxtbMko="),
    (b"base64:/wA=", "base64:YmFzZTY0Oi93QT0="),
])  # fmt: skip
def test_a_value_is_shown_as_text_where_it_is_that(value: bytes | None, text: str) -> None:
    assert text_of(value) == text
    assert bytes_of(text) == (value or b"")


@each_row(("name", "value", "text"), [
    ("kafka_dlt-original-partition", b"\0\0\0\x05", "5"),
    ("kafka_original-offset", b"\0\0\0\0\0\0\1\0", "256"),
    ("x-original-timestamp", b"\0\0\1\x9a\0\0\0\0", "1760936591360"),
    ("retry_topic-attempts", b"\0\0\0\3", "3"),
    ("retry_topic-attempts", b"\3", "3"),
    ("retry_topic-backoff-timestamp", b"\1\x9a\0\0\0\0", "1760936591360"),
    # Somebody who writes text under the same name is understood.
    ("kafka_dlt-original-partition", b"5", "5"),
    ("kafka_dlt-original-partition", b"1234", "1234"),
    ("kafka_dlt-original-offset", b"12345678", "12345678"),
    ("retry_topic-original-timestamp", b"1760936591360", "1760936591360"),
    # The same bytes under another name are bytes.
    ("partition", b"\0\0\0\x05", "base64:AAAABQ=="),
])  # fmt: skip
def test_numbers_that_spring_writes_in_binary_are_decimal_text(name: str, value: bytes, text: str) -> None:
    assert texts_of([(name, value)]) == {name: text}


@each_row(("headers", "texts"), [
    ([("a", b"1"), ("b", b"2"), ("a", b"3")], [("b", "2"), ("a", "3")]),
    ([("dead-letter-topic", b"new"), ("b", b"2"), ("dead-letter-topic", b"old")],
     [("dead-letter-topic", "new"), ("b", "2")]),
    ([("kafka_dlt-original-topic", b"old"), ("kafka_dlt-original-topic", b"new")],
     [("kafka_dlt-original-topic", "new")]),
])  # fmt: skip
def test_of_what_repeats_the_newest_counts_and_stands_where_it_stood(
    headers: Headers, texts: list[tuple[str, str]]
) -> None:
    assert list(texts_of(headers).items()) == texts


def test_an_edit_keeps_order_duplicates_and_bytes_of_what_stays() -> None:
    block = encode(RawRecord(b"k", ODD, 5, is_null=True))
    edited = decode(edit(block, lambda name: name == "nul", {"empty": "full", "n": 7, "bin": "base64:/w=="}))
    kept = [("a", b"1"), ("a", b"2"), ("", b"x"), ("empty", b"full"), ("n", b"7"), ("bin", b"\xff")]
    assert edited == RawRecord(b"k", kept, 5, is_null=True)


def test_of_a_resolved_pointer_the_original_is_edited() -> None:
    pointer = RawRecord(None, [("__dlq.errors.offset", b"3")], original=RawRecord(b"k", [("a", b"1")]))
    edited = decode(edit(encode(pointer), lambda _: False, {"a": "2"}))
    assert edited == pointer._replace(original=RawRecord(b"k", [("a", b"2")]))


def of_line(headers: dict[str, Any], properties: dict[str, Any]) -> tuple[Record, RawRecord]:
    """What a line of strangers becomes; what the golden lines hold is not told here."""
    letter = imported({"broker_kind": "kafka", "headers": headers, "properties": properties})
    return letter, decode(letter.raw_properties or b"")


def test_the_time_of_a_letter_of_connect_is_that_of_its_record() -> None:
    connect = {"__connect.errors.topic": "orders", "__connect.errors.stage": "TASK_PUT"}
    letter, _ = of_line(connect, {"timestamp": 1_700_000_000_000})
    assert (letter.published_at, letter.dead_at) == (1_700_000_000_000_000, None)


def test_an_empty_body_is_a_tombstone_only_where_the_line_says_so() -> None:
    for said, flags in (({}, 0), ({"null_value": True}, VALUE_WAS_NULL)):
        letter, raw = of_line({}, {"key": "k1", **said})
        assert (letter.flags, raw.is_null) == (flags, bool(said))


def test_bytes_are_read_from_base64_and_what_is_none_is_said_in_words() -> None:
    told = f"base64:{base64.b64encode(bytes([255, 0])).decode()}"
    _, raw = of_line({"binary": told}, {"key": told})
    assert (raw.key, list(raw.headers)) == (b"\xff\0", [("binary", b"\xff\0")])
    with pytest.raises(UsageError, match="no base64"):
        of_line({"binary": "base64:?"}, {})
