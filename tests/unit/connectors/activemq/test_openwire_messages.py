"""Messages that come by OpenWire: whole, byte by byte, cut off, damaged, and hostile."""

import contextlib
import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.commands import Letter, Reader, Writer
from dlq.connectors.activemq.openwire.codec.messages import (
    BLOB,
    BYTES,
    CLASSES,
    MAP,
    PACKED,
    TEXT,
    Cursor,
    Dispatch,
    UnreadableError,
    Value,
    body_of,
    dispatch,
    java_text,
    map_of,
    readable,
    stream_of,
    value_of,
)
from dlq.connectors.activemq.openwire.read import ranges
from dlq.connectors.activemq.records.openwire import frame_of
from dlq.connectors.net.links import FrameError

PLACE = commands.destination("queue", "orders")
PROPERTIES = commands.properties({"note": "a:b", "amount": "7"}, {"amount": "int"})
HEAD = struct.calcsize(">iB")


def letter(kind: int = TEXT, body: bytes | None = b"hello", **changes: Any) -> Letter:
    return Letter(PLACE, kind, body, PROPERTIES, 1_700_000_000_000, 8, "c", PLACE, "order", "g", 3)._replace(
        **changes
    )


def frame(sent: Letter, consumer: int = 1) -> bytes:
    """The message that a client has sent, as a broker dispatches it."""
    message = Writer("ID:a-1-2-3:1").message(sent, 1)
    who = struct.pack(">BBBH12sqq", 1, 122, 1, 12, b"ID:a-1-2-3:1", 1, consumer)
    kind = message[HEAD - 1 : HEAD]
    return b"\x15\0\0\0\0\0" + who + PLACE + b"\1" + kind + message[HEAD:] + struct.pack(">i", 0)


def unreadable(found: Dispatch) -> str | None:
    """Why it must stay in its queue."""
    try:
        frame_of(found)
    except UnreadableError as error:
        return str(error)
    return None


@each_row("kind", CLASSES)
def test_what_is_sent_is_what_is_read(kind: int) -> None:
    blob = ("http://a/b", None, True) if kind == BLOB else None
    found = dispatch(frame(letter(kind, blob=blob)))
    message: Any = found.message
    assert (found.consumer, found.kind, found.name[:2]) == (1, kind, b"\1\x6e")
    assert (message.correlation_id, message.priority, message.type) == ("c", 8, "order")
    assert (message.group, message.group_sequence, message.properties) == ("g", 3, PROPERTIES)
    assert (message.timestamp, message.persistent, message.expiration) == (1_700_000_000_000, True, 0)
    assert (message.blob_url, message.blob_deleted) == (("http://a/b", True) if blob else (None, False))
    assert (body_of(kind, message), b"hello" in found.marshalled) == (b"hello", False)


def test_every_message_that_breaks_off_is_said() -> None:
    whole = frame(letter())
    for end in range(6, len(whole)):
        try:
            said = unreadable(dispatch(whole[:end]))
        except UnreadableError as error:
            said = str(error)
        assert "breaks off" in (said or ""), end


@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_damage_is_said_or_harmless(at: int, damage: bytes) -> None:
    whole = frame(letter())
    damaged = whole[:at] + damage + whole[at + len(damage) :]
    with contextlib.suppress(UnreadableError):
        found = dispatch(damaged)
        if unreadable(found) is None and found.message is not None:
            frame_of(found)


def test_a_letter_with_an_unknown_structure_stays_and_has_a_name() -> None:
    whole = frame(letter())
    at = whole.index(PROPERTIES) + len(PROPERTIES)
    found = dispatch(whole[:at] + b"\1\x50" + whole[at + 1 :])
    assert found.message is None
    assert found.name
    assert unreadable(found) == "a message that is not understood: it holds a structure of type 80"


def test_the_end_of_a_browse_has_no_message() -> None:
    data = frame(letter())
    end = data[: data.index(PLACE) + len(PLACE)] + b"\0" + struct.pack(">i", 0)
    assert dispatch(end) == Dispatch(1, 0, b"", None)


VALUES: list[tuple[bytes, str, Any, str]] = [
    (b"\0", "null", None, "null"),
    (b"\1\1", "boolean", True, "true"),
    (b"\2\xf8", "byte", -8, "-8"),
    (b"\3\0\xe9", "char", "é", "é"),
    (b"\4\xff\xf0", "short", -16, "-16"),
    (b"\5\0\0\0\7", "int", 7, "7"),
    (b"\x0d\0\0\0\1x", "string", "x", "x"),
    (b"\x09\0\2\xc0\x80", "string", "\0", "\0"),
    (b"\x0a\0\0\0\1\xff", "bytes", b"\xff", "ff"),
]


@each_row(("data", "kind", "value", "text"), VALUES)
def test_values_have_their_type_and_java_s_text(data: bytes, kind: str, value: Any, text: str) -> None:
    [found] = stream_of(data)
    assert (found, java_text(found)) == (Value(kind, value, data), text)
    assert value_of(data) == found
    assert value_of(data + b"\0") is None
    assert len(data) == 1 or value_of(data[:-1]) is None


@each_row(("number", "single", "text"), [
    (0.1, True, "0.1"), (0.1, False, "0.1"), (1e-3, False, "0.001"), (9.5e-4, False, "9.5E-4"),
    (1e7, False, "1.0E7"), (9999999.0, False, "9999999.0"), (123456.75, False, "123456.75"),
    (16777216.0, True, "1.6777216E7"), (3.4028234663852886e38, True, "3.4028235E38"),
    (-1e300, False, "-1.0E300"), (0.0, False, "0.0"), (-0.0, True, "-0.0"), (float("nan"), False, "NaN"),
    (float("-inf"), True, "-Infinity"),
])  # fmt: skip
def test_numbers_are_written_as_java_writes_them(number: float, single: bool, text: str) -> None:
    assert java_text(Value("float" if single else "double", number, b"")) == text


def nested(depth: int) -> bytes:
    return b"\x0c\0\0\0\1" * depth + b"\0"


HOSTILE = {
    "unknown type": b"\x0e",
    "deeply nested, and cut": nested(100_000)[:-1],
    "a list without end": b"\x0c\x7f\xff\xff\xff\0",
    "a length below zero": b"\x0a\xff\xff\xff\xff",
    "cut": b"\x09\0\5abc",
}


@each_row("what", HOSTILE)
def test_hostile_values_are_refused(what: str) -> None:
    for read in (lambda data: list(stream_of(data)), lambda data: map_of(b"\0\0\0\1\0\1k" + data)):
        with pytest.raises(UnreadableError):
            read(HOSTILE[what])


MAP_OF_ONE = b"\x0b\0\0\0\1\0\1k"
DEEP = {"lists": (b"\x0c\0\0\0\1", "[", "]"), "maps": (MAP_OF_ONE, "{k=", "}")}


@each_row("levels", [31, 32, 33, 34, 100_000])
@each_row("what", DEEP)
def test_a_value_is_whole_however_deep_it_nests(what: str, levels: int) -> None:
    around, begins, ends = DEEP[what]
    data = around * levels + b"\x0d\0\0\0\1x"
    found = map_of(b"\0\0\0\2\0\1k" + data + b"\0\1l\1\1")
    assert (found["k"].raw, java_text(found["k"])) == (data, begins * levels + "x" + ends * levels)
    assert found["l"].value is True
    assert value_of(data) is not None
    assert value_of(data + b"\0") is None
    shown, _ = readable(data, {"class": "stream"}) or (None, "")
    assert ("nested too deeply" in json.dumps(shown)) == (levels > 32)


def test_lists_far_inside_are_printed_as_those_outside_are() -> None:
    inner = b"\x0c\0\0\0\4\x0c\0\0\0\0\0\x0b\xff\xff\xff\xff" + MAP_OF_ONE + b"\x08\x3d\xcc\xcc\xcd"
    [outside] = stream_of(inner)
    [inside] = stream_of(nested(32)[:-1] + inner)
    assert java_text(outside) == "[[], null, {}, {k=0.1}]"
    assert java_text(inside) == "[" * 32 + java_text(outside) + "]" * 32


def compressed(kind: int, content: bytes) -> Any:
    found: Any = dispatch(frame(letter(kind, b"x"))).message
    return found._replace(content=content, compressed=True)


FLUSHED = zlib.compressobj()


@each_row(("kind", "content", "body"), [
    (BYTES, struct.pack(">i", 3) + zlib.compress(b"abc\0\0\0\0"), b"abc"),
    (TEXT, zlib.compress(struct.pack(">i", 4) + b"text"), b"text"),
    (MAP, zlib.compress(b"\0\0\0\0"), b"\0\0\0\0"),
    (MAP, FLUSHED.compress(b"x") + FLUSHED.flush(zlib.Z_SYNC_FLUSH), b"x"),
])  # fmt: skip
def test_compressed_content_is_unpacked(kind: int, content: bytes, body: bytes) -> None:
    assert body_of(kind, compressed(kind, content)) == body


@each_row("kind", [TEXT, BYTES, MAP])
@each_row("content", [b"no zlib", zlib.compress(b"a" * 1000)[:-5], zlib.compress(bytes(2**23)), b""])
def test_content_that_does_not_unpack_or_to_too_much_is_kept_as_it_came(kind: int, content: bytes) -> None:
    found = dispatch(frame(letter(kind)))._replace(message=compressed(kind, content))
    kept = frame_of(found)
    assert kept.body == content
    assert (PACKED in (kept.properties or {})) == bool(content)


def test_structures_in_one_another_are_no_message_and_no_end_of_the_stack() -> None:
    deep = b"\1\x6e\0" * 2000
    with pytest.raises(UnreadableError, match="too many structures in one another"):
        Cursor(deep).structure()
    reader = Reader()
    reader.feed(commands.greeting())
    with pytest.raises(FrameError, match="too many structures in one another"):
        reader.feed(struct.pack(">i", len(deep) + 6) + b"\x15\0\0\0\0\0" + deep)


def test_bodies_are_shown_by_what_is_in_them() -> None:
    a_map = b"\0\0\0\2\0\1k\x0c\0\0\0\1\5\0\0\0\7\0\1b\x0a\0\0\0\1\xff"
    assert readable(a_map, {"class": "map"}) == ({"k": [7], "b": "ff"}, "a MapMessage")
    assert readable(b"\5\0\0\0\7\0", {"class": "stream"}) == ([7, None], "a StreamMessage")
    java = b"\xac\xed\0\5sr\0\x13java.util.ArrayList\x78\x81"
    said = "an ObjectMessage of java.util.ArrayList, which is not deserialized"
    assert readable(java, {"class": "object"}) == (None, said)
    assert "java.lang.String" in (readable(b"\xac\xed\0\5t\0\1x", {"class": "object"}) or ("", ""))[1]
    assert "an unknown class" in (readable(b"rubbish", {"class": "object"}) or ("", ""))[1]
    assert readable(b"text", {"class": "text"}) is readable(b"text", {}) is None
    with pytest.raises(ValueError, match="breaks off"):
        readable(a_map[:-1], {"class": "map"})


@each_row(("names", "expected"), [
    ("", []), ("-", []), ("abc", ["abc"]), ("ab-c", ["ab", "c"]), ("-ab-", ["ab"]), ("abab", ["ab", "ab"]),
    ("aab", ["a", "ab"]), ("abca", ["abc", "a"]),
])  # fmt: skip
def test_a_range_is_a_page_that_holds_no_letter_that_stays_and_no_id_twice(
    names: str, expected: list[str]
) -> None:
    found = ranges([None if name == "-" else name.encode() for name in names])
    assert [b"".join(row).decode() for row in found] == expected
    assert [len(row) for row in ranges([b"%d" % n for n in range(450)])] == [200, 200, 50]


def test_what_is_shown_of_a_map_is_json_also_where_its_numbers_are_none_of_json() -> None:
    entries = {"d": "NaN", "f": "-Infinity", "half": "0.1", "one": "1.0E300"}
    types = {"d": "double", "f": "float", "half": "float", "one": "double"}
    shown, _ = readable(commands.properties(entries, types), {"class": "map"}) or (None, "")
    assert shown == {"d": "nan", "f": "-inf", "half": 0.1, "one": 1e300}
    assert json.dumps(shown, allow_nan=False)
