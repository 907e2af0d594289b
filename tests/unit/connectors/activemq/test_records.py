import pytest

from dlq.connectors.activemq.records import Place, record_maker
from dlq.connectors.activemq.stomp import Frame
from dlq.connectors.base import ReadRequest
from dlq.core.settings import Source

MAKE = record_maker(ReadRequest(Source("s", "b", queue="q"), "drain", "p"), Place("q", "activemq", "6", "n"))


@pytest.mark.parametrize(
    ("millis", "micros"),
    [
        ("1762053129000", 1_762_053_129_000_000),
        ("253402300799999", 253_402_300_799_999_000),
        ("253402300800000", None),
        ("9" * 23, None),
        ("0", None),
        ("-1", None),
    ],
)
def test_a_time_after_the_calendar_is_left_to_the_headers(millis: str, micros: int | None) -> None:
    [record] = MAKE([Frame(b"MESSAGE", b"message-id:1\ntimestamp:%s" % millis.encode(), b"")])
    assert record.published_at == micros
    assert record.headers["timestamp"] == millis
