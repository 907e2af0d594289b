"""Heads of frames that become records: by the column, times, and what a broker shows in two ways."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.activemq.records.frames import Place, by_kind, record_maker, stable_lines
from dlq.connectors.activemq.records.recognition import tell
from dlq.connectors.activemq.stomp.codec import Frame, headers_of
from dlq.connectors.base import ReadRequest
from dlq.core.identity import Told
from dlq.core.settings import Source

MAKE = record_maker(ReadRequest(Source("s", "b", queue="q"), "drain", "p"), Place("q", "activemq", "6", "n"))


@each_row(("millis", "micros"), [
    ("1762053129000", 1_762_053_129_000_000), ("253402300799999", 253_402_300_799_999_000),
    ("253402300800000", None), ("9" * 23, None), ("0", None), ("-1", None),
])  # fmt: skip
def test_a_time_after_the_calendar_is_left_to_the_headers(millis: str, micros: int | None) -> None:
    [record] = MAKE([Frame(b"MESSAGE", b"message-id:1\ntimestamp:%s" % millis.encode(), b"")])
    assert record.published_at == micros
    assert record.headers["timestamp"] == millis


def test_what_classic_shows_of_a_property_in_memory_and_from_its_store_is_one_letter() -> None:
    in_memory, stored, other = (
        MAKE([Frame(b"MESSAGE", f"message-id:1\nnote:{text}".encode(), b"")])[0]
        for text in ("a😀é", "a\ufffd\ufffdé", "a\ufffdé")
    )
    assert in_memory.record_id == stored.record_id != other.record_id
    assert in_memory.headers["note"] == "a😀é"


def told(head: bytes, **known: Any) -> Told:
    [record] = MAKE([Frame(b"MESSAGE", head, b"")])
    return tell(record._replace(**known))


def test_a_letter_whose_names_an_older_dlq_cut_or_left_escaped_is_known_again() -> None:
    head = b"message-id:1\nns:tenant:acme\nns:order:a\\c5"
    for headers in ({"message-id": "1", "ns": "tenant:acme"}, {"message-id": "1", "ns\\ctenant": "acme"}):
        assert told(head) == told(head, headers=headers)
    by_openwire = {"properties": {"class": "text"}, "raw_properties": b"\0\0\0\1\1"}
    old = {"message-id": "1", "ns\\ctenant": "acme", "ns\\corder": "a:5"}
    assert told(head, **by_openwire) == told(head, **by_openwire, headers=old)
    assert told(head) != told(head.replace(b"acme", b"acne"))


def test_a_message_of_openwire_is_none_of_amqp_whatever_its_number() -> None:
    first, again = (
        told(b"message-id:1", properties={"class": "text"}, raw_properties=b"\0\x53\x12\x34\1" + time)
        for time in (b"\1", b"\2")
    )
    assert first == again


def test_a_line_without_a_colon_is_no_header() -> None:
    """It begins a name with a line break, of which Classic's STOMP escapes none."""
    [record] = MAKE([Frame(b"MESSAGE", b"message-id:1\nz\nack:5", b"")])
    assert record.headers == {"message-id": "1", "ack": "5"}


names = st.sampled_from([b"ack", b"message-id", b"a", b"a-b", b"a\\cb", b"\xff", b"\xfe", b"no colon"])
values = st.sampled_from([b"", b"1", b"x:y", b"ID\\cvm-1\\c2", b"\\\\n", b"\xe2\x82", b"\xc3\xa9\r"])
lines = st.tuples(names, values).map(lambda pair: pair[0] if b" " in pair[0] else b":".join(pair))
heads = st.lists(lines, min_size=1, max_size=5).map(b"\n".join)


@given(st.lists(heads, min_size=1, max_size=8))
@example([b"a:1\na-b:2", b"a:1\na-b:3"])
@example([b"a-b:2\na:1", b"a:1\na-b:2"])
@example([b"a:1\na:2", b"a:3\na:2"])
@example([b"a:1\nno colon"])
@example([b"a:1", b"a:b:1"])
@example([b"a:2\na:b:1", b"a:b:2\na:1"])
def test_every_head_has_its_own_headers_and_stable_lines(some: list[bytes]) -> None:
    found = {
        place: (headers, stable)
        for kind in by_kind(some)
        for place, headers, stable in zip(kind.places, kind.headers, kind.stable, strict=True)
    }
    assert found == {
        n: (headers_of(head, of_message=True), stable_lines(head)) for n, head in enumerate(some)
    }
