"""RocketMQ's frames and the JSON of its Java; `test_hostile_bytes` cuts frames anywhere."""

import base64
import hashlib
import hmac
import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.rocketmq.link import lenient_json
from dlq.connectors.rocketmq.link.remoting import (
    Credential,
    Frame,
    FrameReader,
    ProtocolError,
    encode_fields,
    request,
    sign_fields,
    text_fields,
    version_name,
)


def answer(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    word = kind << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), word) + header + body


def json_answer(opaque: int = 7, body: bytes = b"", **more: object) -> bytes:
    document = {"code": 0, "language": "JAVA", "version": 407, "opaque": opaque, "flag": 1, **more}
    return answer(json.dumps(document).encode(), body)


def sized(text: str, form: str) -> bytes:
    return struct.pack(form, len(text.encode())) + text.encode()


def binary_answer(remark: str, fields: dict[str, str], body: bytes = b"") -> bytes:
    pairs = b"".join(sized(name, ">h") + sized(value, ">i") for name, value in fields.items())
    head = struct.pack(">hbhii", 19, 0, 513, 8, 1) + sized(remark, ">i")
    return answer(head + struct.pack(">i", len(pairs)) + pairs, body, kind=1)


SAMPLES = {
    "json": (json_answer(extFields={"offset": "5"}), Frame(0, 7, True, 407, "", {"offset": "5"}, b"")),
    "json with a body": (json_answer(body=b"\0\xff"), Frame(0, 7, True, 407, "", {}, b"\0\xff")),
    "null fields": (json_answer(extFields=None, remark=None), Frame(0, 7, True, 407, "", {}, b"")),
    "binary": (binary_answer("FOUND é", {"minOffset": "0", "k": ""}, b"body"),
     Frame(19, 8, True, 513, "FOUND é", {"minOffset": "0", "k": ""}, b"body")),
    "binary without fields": (binary_answer("", {}), Frame(19, 8, True, 513, "", {}, b"")),
}  # fmt: skip


@each_row("what", SAMPLES)
def test_a_frame_is_read_whole_and_with_trailing_bytes(what: str) -> None:
    data, expected = SAMPLES[what]
    reader = FrameReader()
    assert list(reader.feed(data + data[:11])) == [expected]
    assert list(reader.feed(data[11:])) == [expected]


def test_a_request_is_what_the_broker_parses() -> None:
    data = request(310, 9, encode_fields(text_fields({"b": 'a"\x01é', "k": False, "e": -1})), b"body")
    (frame,) = FrameReader().feed(data)
    assert (frame.code, frame.opaque, frame.is_answer, frame.body) == (310, 9, False, b"body")
    assert frame.fields == {"b": 'a"\x01é', "k": "false", "e": "-1"}


def test_the_signature_covers_the_sorted_values_and_the_body() -> None:
    # the Java side's AclUtils.combineRequestContent + calSignature over "akbodyvalue.." with secret "sk"
    fields = sign_fields({"topic": "t", "a": "1"}, b"body", Credential("ak", "sk"))
    assert fields["AccessKey"] == "ak"
    expected = hmac.new(b"sk", b"ak1tbody", hashlib.sha1).digest()
    assert base64.b64decode(fields["Signature"]) == expected
    assert sign_fields({"a": "1"}, b"", None) == {"a": "1"}


@each_row("data", [
    struct.pack(">i", 3) + b"abc",
    struct.pack(">i", 2**30),
    struct.pack(">iI", 8, 100) + b"abcd",
    answer(b"{}"),
    answer(b"[1]"),
    answer(b"{", kind=0),
    answer(b"\0" * 5, kind=1),
    answer(b"{}", kind=2),
    answer(struct.pack(">hbhiii", 0, 0, 0, 1, 1, 99), kind=1),
    answer(struct.pack(">hbhiii", 0, 0, 0, 1, 1, 0) + struct.pack(">i", 99), kind=1),
    answer(struct.pack(">hbhiii", 0, 0, 0, 1, 1, 0) + struct.pack(">ih", 4, 99) + b"ab", kind=1),
])  # fmt: skip
def test_damaged_frames_are_protocol_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(FrameReader().feed(data))


@given(st.binary(max_size=100), st.sampled_from([0, 1]))
def test_any_header_gives_a_frame_or_a_protocol_error(header: bytes, kind: int) -> None:
    with suppress(ProtocolError):
        (frame,) = FrameReader().feed(answer(header, b"x", kind))
        assert frame.body == b"x"


LENIENT = [
    ('{"a":{"b":{0:"h:1",1:"h:2"}}}', {"a": {"b": {"0": "h:1", "1": "h:2"}}}),
    ('{"t":{{"b":"x","q":0}:{"max":5},{"q":1}:{}}}', {"t": {'{"b":"x","q":0}': {"max": 5}, '{"q":1}': {}}}),
    (' { 0 : [ 1.5 , true , null , "{1:2}" ] } ', {"0": [1.5, True, None, "{1:2}"]}),
    ("[]", []),
    ("{}", {}),
]


@each_row(("text", "expected"), LENIENT)
def test_fastjson_is_read(text: str, expected: object) -> None:
    assert lenient_json.loads(text) == expected


@each_row("text", ["", "{", "{0:", '{0:"a"', "{0 1}", "[1 2]", "{0:1}x", "{0:" * 100, "nul", "{0:}"])
def test_what_is_no_document_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        lenient_json.loads(text)


leaves = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(leaves, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=20))
def test_strict_json_is_read_too(value: object) -> None:
    assert lenient_json.loads(json.dumps(value)) == value
    assert lenient_json.loads("{0:" + json.dumps(value) + "}") == {"0": value}


def test_version_ordinals_have_names() -> None:
    names = {407: "4.9.7", 513: "5.5.0", 479: "5.3.3", 213: "4.0.0", 121: "3.x (121)"}
    assert {ordinal: version_name(ordinal) for ordinal in names} == names


def stored(**changes: object) -> bytes:
    fields = {"queueId": "0", "msgId": "0A"}
    document = {"code": 0, "extFields": fields, "flag": 1, "language": "JAVA", "opaque": 7}
    end = {"serializeTypeCurrentRPC": "JSON", "version": 513}
    return answer(json.dumps({**document, **end, **changes}, separators=(",", ":")).encode(), b"x")


@each_row(("changes", "is_brief"), [
    ({}, True), ({"code": 1}, False), ({"flag": 0}, False),
    ({"extFields": {"a": '"},"flag":1,"opaque":9'}}, False), ({"remark": "all is well"}, False),
])  # fmt: skip
def test_a_brief_reader_leaves_out_nothing_but_the_fields_of_success(
    changes: dict[str, object], is_brief: bool
) -> None:
    (whole,) = FrameReader().feed(stored(**changes))
    (brief,) = FrameReader(brief=True).feed(stored(**changes))
    assert brief == (whole._replace(fields={}) if is_brief else whole)
