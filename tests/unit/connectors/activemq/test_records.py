import pytest

from dlq.connectors.activemq.records.frames import Place, record_maker
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.base import ReadRequest
from dlq.core.settings import Source

MAKE = record_maker(ReadRequest(Source("s", "b", queue="q"), "drain", "p"), Place("q", "activemq", "6", "n"))


@pytest.mark.parametrize(("millis", "micros"), [
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
