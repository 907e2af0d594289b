"""Headers of a Kafka record as texts."""

import pytest
from support.rows import each_row

from dlq.connectors.kafka.records.header_texts import bytes_of, edit, text_of, texts_of
from dlq.connectors.kafka.records.raw import Headers, RawRecord, decode, encode

VALUES: list[tuple[bytes | None, str]] = [
    (b"plain", "plain"), ("é 世".encode(), "é 世"),
    (b"java.lang.X: no\n\tat a.b(C.java:1)\r\n", "java.lang.X: no\n\tat a.b(C.java:1)\r\n"), (b"", ""),
    (None, ""), (b"\xff\x00", "base64:/wA="), (b"a\x00b", "base64:YQBi"),
    (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"), (b"\x07\x1b[2J", "base64:BxtbMko="),
    (b"base64:/wA=", "base64:YmFzZTY0Oi93QT0="),
]  # fmt: skip


@each_row(("value", "text"), VALUES)
def test_a_value_is_shown_as_text_where_it_is_that(value: bytes | None, text: str) -> None:
    assert text_of(value) == text
    assert bytes_of(text) == (value or b"")


NUMBERS: list[tuple[str, bytes, str]] = [
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
]


@each_row(("name", "value", "text"), NUMBERS)
def test_numbers_that_spring_writes_in_binary_are_decimal_text(name: str, value: bytes, text: str) -> None:
    assert texts_of([(name, value)]) == {name: text}


REPEATED: list[tuple[Headers, list[tuple[str, str]]]] = [
    ([("a", b"1"), ("b", b"2"), ("a", b"3")], [("b", "2"), ("a", "3")]),
    ([("dead-letter-topic", b"new"), ("b", b"2"), ("dead-letter-topic", b"old")],
     [("dead-letter-topic", "new"), ("b", "2")]),
    ([("kafka_dlt-original-topic", b"old"), ("kafka_dlt-original-topic", b"new")],
     [("kafka_dlt-original-topic", "new")]),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "texts"), REPEATED)
def test_of_what_repeats_the_newest_counts_and_stands_where_it_stood(
    headers: Headers, texts: list[tuple[str, str]]
) -> None:
    assert list(texts_of(headers).items()) == texts


ODD: Headers = [("a", b"1"), ("nul", None), ("empty", b""), ("a", b"2"), ("bin", b"\xff\x00"), ("", b"x")]


def test_an_edit_keeps_order_duplicates_and_bytes_of_what_stays() -> None:
    block = encode(RawRecord(b"k", ODD, 5, is_null=True))
    edited = decode(edit(block, lambda name: name == "nul", {"empty": "full", "n": 7, "bin": "base64:/w=="}))
    kept = [("a", b"1"), ("a", b"2"), ("", b"x"), ("empty", b"full"), ("n", b"7"), ("bin", b"\xff")]
    assert edited == RawRecord(b"k", kept, 5, is_null=True)


def test_of_a_resolved_pointer_the_original_is_edited() -> None:
    pointer = RawRecord(None, [("__dlq.errors.offset", b"3")], original=RawRecord(b"k", [("a", b"1")]))
    edited = decode(edit(encode(pointer), lambda _: False, {"a": "2"}))
    assert edited == pointer._replace(original=RawRecord(b"k", [("a", b"2")]))
