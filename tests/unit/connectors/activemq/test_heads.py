"""Heads read column by column say what each says alone."""

from hypothesis import example, given
from hypothesis import strategies as st

from dlq.connectors.activemq.records import Place, by_kind, record_maker, stable_lines
from dlq.connectors.activemq.stomp import Frame, headers_of
from dlq.connectors.base import ReadRequest
from dlq.core.settings import Source

names = st.sampled_from([b"ack", b"message-id", b"a", b"a-b", b"a\\cb", b"\xff", b"\xfe", b"no colon"])
values = st.sampled_from([b"", b"1", b"x:y", b"ID\\cvm-1\\c2", b"\\\\n", b"\xe2\x82", b"\xc3\xa9\r"])
lines = st.tuples(names, values).map(lambda pair: pair[0] if b" " in pair[0] else b":".join(pair))
heads = st.lists(lines, min_size=1, max_size=5).map(b"\n".join)


@given(st.lists(heads, min_size=1, max_size=8))
@example([b"a:1\na-b:2", b"a:1\na-b:3"])
@example([b"a-b:2\na:1", b"a:1\na-b:2"])
@example([b"a:1\na:2", b"a:3\na:2"])
@example([b"a:1\nno colon"])
def test_every_head_has_its_own_headers_and_stable_lines(some: list[bytes]) -> None:
    found = {
        place: (headers, stable)
        for kind in by_kind(some)
        for place, headers, stable in zip(kind.places, kind.headers, kind.stable, strict=True)
    }
    assert found == {n: (headers_of(head), stable_lines(head)) for n, head in enumerate(some)}


def test_the_order_of_stable_lines_is_that_of_whole_lines() -> None:
    [kind] = by_kind([b"a-b:2\nack:7\na:1", b"a-b:2\nack:8\na:3"])
    assert list(kind.stable) == [b"a-b:2\na:1", b"a-b:2\na:3"]


def test_letters_of_several_kinds_stay_in_their_order_with_their_own_fields() -> None:
    make = record_maker(
        ReadRequest(Source("s", "b", queue="q"), "drain", "p"), Place("q", "activemq", "6", "n")
    )
    frames = [
        Frame(b"MESSAGE", b"message-id:%d\n%b" % (n, more), b"%d" % n)
        for n, more in enumerate([b"correlation-id:c", b"priority:7", b"correlation-id:d", b"timestamp:5"])
    ]
    records = make(frames)
    assert [r.message_id for r in records] == ["0", "1", "2", "3"]
    assert [r.correlation_id for r in records] == ["c", None, "d", None]
    assert [(r.priority, r.published_at) for r in records[1::2]] == [(7, None), (None, 5000)]
    assert [r.record_id for r in records] == [make([frame])[0].record_id for frame in frames]
