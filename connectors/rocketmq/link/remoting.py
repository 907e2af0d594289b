"""RocketMQ's remoting protocol: bytes in, frames out, no sockets.

A frame is `int32 length | int32 (serialisation << 24 | header length) | header | body`. Headers are JSON
(serialisation 0) or RocketMQ's own binary form (1); 5.x brokers answer in the one *they* are set to.
Requests are matched to answers by `opaque`. Source: remoting/netty/NettyDecoder and RocketMQSerializable.
"""

import base64
import hashlib
import hmac
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from dlq.connectors.net.links import FrameError
from dlq.connectors.rocketmq.link.lenient_json import loads
from dlq.core.errors import BrokerError, ConnectionLost

_MAX_FRAME = 16 * 2**20
"""What every broker takes and sends unless `com.rocketmq.remoting.frameMaxLength` was changed."""
_MOST_HEADER = 2**20
"""Bytes of a header: some fields and a remark. It is turned into objects, which take many times as much."""
_VERSION = 409
"""V4_9_8, as an MQVersion ordinal: from 401 the name server writes standard JSON routes, below 121 the
broker ignores maxReconsumeTimes."""
_LONG = re.compile(r"-?[0-9]{1,19}")
_MOST_LONG = 2**63
_RESPONSE = 1
_STORED = re.compile(
    rb'\{"code":0,"extFields":\{[^{}]*\},"flag":1,"language":"JAVA","opaque":(\d{1,10}),'
    rb'"serializeTypeCurrentRPC":"JSON","version":(\d{1,10})\}'
)
"""How brokers write that all went well. No value in it holds a brace, so nothing can pose as the rest."""
_LENGTHS = struct.Struct(">iI")
_BINARY = struct.Struct(">hbhiii")
_TEMPLATE = '{"code":%d,"language":"PYTHON","version":%d,"opaque":%d,"flag":0,"extFields":{%s}}'


class ProtocolError(FrameError):
    """The peer sent what is no frame, or no message."""


class RequestCode(IntEnum):
    """Request codes (remoting/protocol/RequestCode)."""

    PULL = 11
    QUERY_MESSAGE = 12
    CONSUMER_OFFSET = 14
    CREATE_TOPIC = 17
    TOPIC_CONFIGS = 21
    BROKER_CONFIG = 26
    RUNTIME_INFO = 28
    MAX_OFFSET = 30
    MIN_OFFSET = 31
    VIEW_MESSAGE = 33
    CREATE_GROUP = 200
    GROUP_CONFIGS = 201
    CONSUMER_CONNECTIONS = 203
    ROUTE = 105
    CLUSTER = 106
    ALL_TOPICS = 206
    DELETE_GROUP = 207
    DELETE_TOPIC = 215
    DELETE_ROUTE = 216
    SEND_V2 = 310
    SEND_BATCH = 320
    QUERY_QUEUE = 321
    TOPIC_STATS = 202
    TOPIC_GROUPS = 300
    RESUME_CHECK = 323
    GROUP_TOPICS = 343
    TOPIC_CONFIG = 351
    EPOCHS = 1007


class ResponseCode(IntEnum):
    """Response codes (remoting/protocol/ResponseCode, RemotingSysResponseCode)."""

    OK = 0
    SYSTEM_ERROR = 1
    BUSY = 2
    NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    ILLEGAL_MESSAGE = 13
    NOT_SERVING = 14
    NO_PERMISSION = 16
    NO_TOPIC = 17
    PULL_NOT_FOUND = 19
    PULL_AGAIN = 20
    PULL_MOVED = 21
    QUERY_NOT_FOUND = 22
    NO_GROUP = 26


class Frame(NamedTuple):
    """One frame of the peer: an answer, or a request of its own."""

    code: int
    opaque: int
    is_answer: bool
    version: int
    remark: str
    fields: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """Return the JSON of an answer; an empty object where it says no. Raises ValueError."""
        return loads(self.body.decode()) if self.code == ResponseCode.OK else {}


# A named tuple's own constructor costs twice as much.
_frame = Frame._make


class Credential(NamedTuple):
    """An ACL user; 1.0 and 2.0 sign alike."""

    access_key: str
    secret_key: str


def text_fields(fields: Mapping[str, object]) -> dict[str, str]:
    """Header fields as the Java side parses them: booleans in lower case, everything as text."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in fields.items()}


def sign_fields(fields: dict[str, str], body: bytes, credential: Credential | None) -> dict[str, str]:
    """Return the fields with AccessKey and Signature: HMAC-SHA1 over the values in key order, then the
    body."""
    if credential is None:
        return fields
    fields = {**fields, "AccessKey": credential.access_key}
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    digest = hmac.new(credential.secret_key.encode(), content, hashlib.sha1).digest()
    return {**fields, "Signature": base64.b64encode(digest).decode()}


def encode_fields(fields: Mapping[str, str]) -> str:
    """Header fields as they stand in a request; joined by commas they are the fields of both."""
    quote = encode_basestring_ascii
    return ",".join([f"{quote(name)}:{quote(value)}" for name, value in fields.items()])


def request(code: int, opaque: int, fields: str, body: bytes = b"") -> bytes:
    """Return one request frame. The fields are complete (and signed) and written by now."""
    header = (_TEMPLATE % (code, _VERSION, opaque, fields)).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


class FrameReader:
    """Turns received bytes into frames. Raises ProtocolError, after which the connection is of no use."""

    def __init__(self, max_frame: int = 2 * _MAX_FRAME, brief: bool = False) -> None:
        """`brief`: the fields of answers that say nothing but OK are left out; senders need none."""
        self._max_frame, self._brief = max_frame, brief
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that `data` completes, in order."""
        self._buffer += data
        start, frames = 0, []
        while (end := self._end_of_frame(start)) is not None:
            frames.append(_parse_frame(memoryview(self._buffer)[start + 4 : end], self._brief))
            start = end
        del self._buffer[:start]
        return iter(frames)

    def _end_of_frame(self, start: int) -> int | None:
        if len(self._buffer) < start + 4:
            return None
        length = int.from_bytes(self._buffer[start : start + 4], "big")
        if not 4 <= length <= self._max_frame:
            raise ProtocolError(f"a frame of {length} bytes; the limit is {self._max_frame}")
        return start + 4 + length if len(self._buffer) >= start + 4 + length else None


def _parse_frame(content: bytes | memoryview, brief: bool = False) -> Frame:
    """Return a frame without its length. Raises ProtocolError."""
    word = int.from_bytes(content[:4], "big")
    kind, end = word >> 24, 4 + (word & 0xFFFFFF)
    if end > min(len(content), _MOST_HEADER) or kind not in _HEADERS:
        raise ProtocolError(f"a header of {end - 4} bytes and kind {kind} in a frame of {len(content)}")
    if brief and kind == 0 and (stored := _STORED.fullmatch(content, 4, end)):
        return _frame((ResponseCode.OK, int(stored[1]), True, int(stored[2]), "", {}, bytes(content[end:])))
    try:
        return _HEADERS[kind](bytes(content[4:end]), bytes(content[end:]))
    except (ValueError, TypeError, AttributeError, KeyError, struct.error, RecursionError) as error:
        raise ProtocolError(f"unreadable frame header: {type(error).__name__}") from error


def _json_header(header: bytes, body: bytes) -> Frame:
    document = loads(header.decode())
    fields = {name: str(value) for name, value in (document.get("extFields") or {}).items()}
    return _frame((
        int(document["code"]),
        int(document["opaque"]),
        bool(int(document["flag"]) & _RESPONSE),
        int(document.get("version") or 0),
        str(document.get("remark") or ""),
        fields,
        body,
    ))  # fmt: skip


def _binary_header(header: bytes, body: bytes) -> Frame:
    code, _language, version, opaque, flag, remark_length = _BINARY.unpack_from(header)
    at = _BINARY.size + remark_length
    remark = header[_BINARY.size : at].decode()
    if remark_length < 0 or at > len(header):
        raise ProtocolError("a remark longer than its header")
    fields = dict(_binary_fields(header[at:]))
    return Frame(code, opaque, bool(flag & _RESPONSE), version, remark, fields, body)


def _binary_fields(block: bytes) -> Iterator[tuple[str, str]]:
    end = 4 + int.from_bytes(block[:4], "big") if len(block) >= 4 else 0
    if end > len(block):
        raise ProtocolError("header fields longer than their header")
    at = 4
    while at < end:
        name, at = _read_string(block, at, 2, end)
        value, at = _read_string(block, at, 4, end)
        yield name, value


def _read_string(block: bytes, at: int, width: int, limit: int) -> tuple[str, int]:
    start = at + width
    end = start + int.from_bytes(block[at:start], "big")
    if end > limit:
        raise ProtocolError("a header field longer than its block")
    return block[start:end].decode(), end


_HEADERS = {0: _json_header, 1: _binary_header}


def version_name(ordinal: int) -> str:
    """Return an MQVersion ordinal as people say it: 407 is 4.9.7, 513 is 5.5.0."""
    # A release has two ordinals (its snapshot's and its own), a minor version ten releases.
    major, first = (5, 413) if ordinal >= 413 else (4, 213)
    if ordinal < first:
        return f"3.x ({ordinal})"
    minor, patch = divmod((ordinal - first) // 2, 10)
    return f"{major}.{minor}.{patch}"


def long(told: object) -> int:
    """Return a number of an answer that is a `long` in Java. Raises ValueError, TypeError for anything
    else."""
    if type(told) is not int and not _LONG.fullmatch(str(told)):
        raise ValueError("no number")
    number = int(str(told))
    if not -_MOST_LONG <= number < _MOST_LONG:
        raise ValueError("a number of more than 64 bits")
    return number


@contextmanager
def understood(who: str) -> Iterator[None]:
    """Guard the reading of an answer of `who`. What is missing in it, or of another shape, is a
    BrokerError; what is no message, a ConnectionLost."""
    try:
        yield
    except ProtocolError as error:
        raise ConnectionLost(f"{who} sent what is no message: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BrokerError(
            f"{who} sent an answer that cannot be understood ({type(error).__name__}); is it RocketMQ?"
        ) from error
