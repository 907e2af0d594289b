"""STOMP frames: whole, byte by byte, with trailing bytes, and with texts that try to forge."""

from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.activemq.stomp.codec import (
    Frame,
    FrameReader,
    escape,
    unescape,
)

TOKEN = "f00dfeed"


def message(body: bytes, *headers: str, length: bool = False) -> bytes:
    """As ActiveMQ writes it: the subscription id is our token, and a newline follows the NUL."""
    lines = [f"subscription:{TOKEN}", *headers, *([f"content-length:{len(body)}"] if length else [])]
    return b"MESSAGE\n" + "\n".join(lines).encode() + b"\n\n" + body + b"\0\n"


RECEIPT = f"RECEIPT\nreceipt-id:{TOKEN}-1\n\n\0\n".encode()


def read(*pieces: bytes) -> list[Frame]:
    reader = FrameReader(TOKEN)
    return [frame for piece in pieces for frame in reader.feed(piece)]


def test_a_message_is_certain_once_another_frame_follows() -> None:
    reader = FrameReader(TOKEN)
    assert reader.feed(message(b"one")) == []
    assert reader.unfinished_bytes
    frames = reader.feed(RECEIPT)
    assert [(f.command, f.body) for f in frames] == [(b"MESSAGE", b"one"), (b"RECEIPT", b"")]
    assert not reader.unfinished_bytes


@each_row("text", [
    b"a\0MESSAGE\nsubscription:guess\n\nphantom", b"a\0\nMESSAGE\ndestination:/queue/x\n\nphantom\0\n",
    b"a\0\nRECEIPT\nreceipt-id:guess-1\n\n", b"a\0\nERROR\nmessage:boo\n\n",
    b"a\0MESSAGE\nno end of headers", b"a\0\n", b"\0\0\0",
])  # fmt: skip
def test_a_text_with_a_nul_comes_whole_and_flagged_and_forges_nothing(text: bytes) -> None:
    frames = read(message(text) + message(b"next") + RECEIPT)
    assert [(f.command, f.body, f.inner_nul) for f in frames] == [
        (b"MESSAGE", text, True), (b"MESSAGE", b"next", False), (b"RECEIPT", b"", False),
    ]  # fmt: skip


def test_an_error_is_read_at_once_and_from_the_last_bytes_of_a_dead_connection() -> None:
    error = b"ERROR\nmessage:no such\\nuser\n\ntrace\0\n"
    assert read(error)[0].command == b"ERROR"
    reader = FrameReader(TOKEN)
    assert reader.feed(message(b"x") + error) == []
    assert reader.last_error() == "no such\nuser"


@given(st.text())
def test_escaping_is_undone_by_unescaping(text: str) -> None:
    assert unescape(escape(text)) == text
    assert not set("\r\n:") & set(escape(text))


bodies = st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=6)


@given(bodies, st.data())
def test_any_bodies_in_any_pieces_come_out_as_they_went_in(
    items: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    stream = b"".join(message(body, length=length) for body, length in items) + RECEIPT
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames = read(*[stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)])
    assert [f.body for f in frames if f.command == b"MESSAGE"] == [body for body, _ in items]
    assert [f.inner_nul for f in frames[:-1]] == [b"\0" in body and not length for body, length in items]


@each_row("step", [1, 7, 10_000])
@each_row("length", [3, 4, 60, 70_000])
def test_a_property_that_is_no_length_is_not_believed_and_holds_up_no_frame(step: int, length: int) -> None:
    data = message(b"text", f"content-length:{length}") + message(b"\0MESS", "content-length:5") + RECEIPT
    found = read(*(data[at : at + step] for at in range(0, len(data), step)))
    assert [frame.body for frame in found] == [b"text", b"\0MESS", b""]
    [cut, _] = read(message(b"abc\0def", "content-length:3") + RECEIPT)
    assert (cut.body, cut.inner_nul) == (b"abc\0def", True)


@each_row("step", [1, 7, 50, 10_000])
def test_a_property_that_names_where_another_message_ends_swallows_none(step: int) -> None:
    """Who sends both letters can tell how long the second one will be."""
    after = message(b"next") + message(b"last", length=True)
    for length in range(len(message(b"text", "content-length:000") + after)):
        data = message(b"text", f"content-length:{length:03}") + after + RECEIPT
        found = read(*(data[at : at + step] for at in range(0, len(data), step)))
        assert [frame.body for frame in found] == [b"text", b"next", b"last", b""], length
