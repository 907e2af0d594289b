"""Heads read column by column say what each says alone."""

from hypothesis import example, given
from hypothesis import strategies as st

from dlq.connectors.activemq.records.frames import by_kind, stable_lines
from dlq.connectors.activemq.stomp.codec import headers_of

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
