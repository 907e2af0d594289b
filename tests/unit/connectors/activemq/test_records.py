"""Heads of frames that become records: by the column, times, and what a broker shows in two ways."""

from hypothesis import example, given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.activemq.records.frames import Place, by_kind, record_maker, stable_lines
from dlq.connectors.activemq.stomp.codec import Frame, headers_of
from dlq.connectors.base import ReadRequest
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
