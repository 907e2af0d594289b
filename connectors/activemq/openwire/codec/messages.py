"""What an ActiveMQ Classic broker delivers by OpenWire, read without sockets: messages, and their bodies.

A structure is the sequence of fields that `looseUnmarshal` takes in activemq-client,
org/apache/activemq/openwire/v11/*Marshaller.java; one table holds them all. Properties, and the entries of
Map and Stream messages, are those of org/apache/activemq/util/MarshallingSupport.java. What is in an Object
message is never looked into.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dlq.connectors.activemq.stomp.codec import text_of
from dlq.connectors.amqp10.codec.values import shown_real
from dlq.core.runtime.budget import most_unpacked

DISPATCH = 21
_PLAIN, BYTES, MAP, OBJECT, STREAM, TEXT, BLOB = range(23, 30)
CLASSES: Mapping[int, str] = {
    _PLAIN: "plain", BYTES: "bytes", MAP: "map", OBJECT: "object", STREAM: "stream", TEXT: "text",
    BLOB: "blob",
}  # fmt: skip
QUEUE, TOPIC, TEMP_QUEUE, TEMP_TOPIC = range(100, 104)
_MESSAGE_ID, PRODUCER_ID, BROKER_ID = 110, 123, 124
_MAX_DEPTH = 32
"""Maps and lists inside one another; what lies deeper is read as the text that Java prints for it."""
_DEEP = "deep"
_MAX_STRUCTURES = 8
"""Structures inside one another; the deepest known has three levels."""
PACKED = "packed"
"""A record's property: its body is compressed content, kept as it came."""


class UnreadableError(ValueError):
    """Bytes that are no OpenWire, or hold a structure that is not known here."""


class Structure(NamedTuple):
    """A structure and its fields, in the order of its marshaller."""

    kind: int
    fields: tuple[Any, ...]


Seen = dict["_Alike", list[tuple[bytes, list[Any]]]]
"""The last values of fields that are mostly the same from message to message, as they came and read. What is
read ends where it says, so none is the beginning of another."""
_FEW = 4


class Cursor:
    """A place in bytes. Each method reads what stands there, and goes on behind it. Raises UnreadableError,
    IndexError or struct.error where the bytes end."""

    __slots__ = ("_depth", "_seen", "at", "data")

    def __init__(self, data: bytes, at: int = 0, seen: "Seen | None" = None) -> None:
        self.data, self.at, self._depth = data, at, 0
        self._seen: Seen = {} if seen is None else seen

    def flag(self) -> bool:
        """Return a truth value, or whether a field is there."""
        at = self.at
        self.at = at + 1
        return self.data[at] != 0

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed size that follow one another."""
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)

    def number(self, layout: struct.Struct) -> Any:
        """Return one such field."""
        at = self.at
        self.at = at + layout.size
        return layout.unpack_from(self.data, at)[0]

    def take(self, size: int) -> bytes:
        """Take the next `size` bytes."""
        begin = self.at
        self.at = end = begin + size
        if size < 0 or end > len(self.data):
            raise UnreadableError(_BREAKS_OFF)
        return self.data[begin:end]

    def utf(self) -> str:
        """Return a text of at most 64 KiB (java.io.DataInput#readUTF)."""
        at = self.at
        data = self.data[at + 2 : at + 2 + (self.data[at] << 8 | self.data[at + 1])]
        self.at = at + 2 + len(data)
        if len(data) != self.data[at] << 8 | self.data[at + 1]:
            raise UnreadableError(_BREAKS_OFF)
        return data.decode("ascii") if data.isascii() else _decode(data)

    def string(self) -> str | None:
        """Return a text that may be absent."""
        return self.utf() if self.flag() else None

    def sequence(self) -> bytes | None:
        """Return bytes that may be absent."""
        return self.take(self.number(_I32)) if self.flag() else None

    def structure(self) -> Structure | None:
        """Return a structure that may be absent."""
        if not self.flag():
            return None
        kind = self.number(_U8)
        parts = _STRUCTURES.get(kind)
        if parts is None:
            raise UnreadableError(f"it holds a structure of type {kind}")
        if self._depth >= _MAX_STRUCTURES:
            raise UnreadableError("it holds too many structures in one another")
        self._depth += 1
        found = Structure(kind, tuple(self.fields(parts)))
        self._depth -= 1
        return found

    def structures(self) -> list[Structure | None] | None:
        """Return an array of them that may be absent."""
        return [self.structure() for _ in range(self.number(_U16))] if self.flag() else None

    def fields(self, parts: "_Parts") -> list[Any]:
        """Return the fields of a structure, in the order of its marshaller."""
        values: list[Any] = []
        for part in parts:
            if isinstance(part, struct.Struct):
                values += self.numbers(part)
            elif isinstance(part, _Alike):
                values += self.alike(part)
            else:
                values.append(part(self))
        return values

    def alike(self, part: "_Alike") -> list[Any]:
        """Fields that are mostly those of the last messages."""
        begin, seen = self.at, self._seen.setdefault(part, [])
        for raw, found in seen:
            if self.data.startswith(raw, begin):
                self.at = begin + len(raw)
                return found
        found = self.fields(part.parts)
        seen.insert(0, (self.data[begin : self.at], found))
        del seen[_FEW:]
        return found


class _Alike:
    """Fields in a row that are mostly the same from message to message."""

    def __init__(self, parts: "_Parts") -> None:
        self.parts = parts


_Part = struct.Struct | _Alike | Callable[[Cursor], Any]
_Parts = Sequence[_Part]
_U8, _I8, _U16, _I16 = (struct.Struct(f">{code}") for code in "BbHh")
_I32, _I64, _FLOAT, _DOUBLE = (struct.Struct(f">{code}") for code in "iqfd")
_BREAKS_OFF = "it breaks off"
_ENDS = (struct.error, IndexError)
_OF_ITS_OWN: Mapping[str, Callable[[Cursor], Any]] = {
    "s": Cursor.string, "x": Cursor.sequence, "o": Cursor.structure, "a": Cursor.structures,
}  # fmt: skip


def _parts(codes: str) -> _Parts:
    """`codes`: s text, x bytes, o structure, a structures; all else as the struct module has it. In
    parentheses: mostly alike."""
    return [_part(found) for found in re.findall(r"\(.*?\)|[soxa]|[^soxa(]+", codes)]


def _part(codes: str) -> "_Part":
    if codes.startswith("("):
        return _Alike(_parts(codes[1:-1]))
    return _OF_ITS_OWN[codes] if codes in _OF_ITS_OWN else struct.Struct(f">{codes}")


# Up to its id, from there to its content, and the rest.
_MESSAGE = _parts("i?(oooo)"), _parts("(osi)s(?qbo)q(s)"), _parts("x(oo?iaqs??a)qq?")
_PLACES = _parts("(oo)")
_STRUCTURES: Mapping[int, _Parts] = {
    kind: _parts(codes)
    for kind, codes in {
        **dict.fromkeys((QUEUE, TOPIC, TEMP_QUEUE, TEMP_TOPIC), "s"),
        _MESSAGE_ID: "(so)qq",  # text, producer, number, number at the broker
        111: "qo",  # local transaction
        112: "ixx",  # XA transaction
        120: "s",  # connection
        121: "sq",  # session
        122: "sqq",  # consumer: connection, session, number
        PRODUCER_ID: "sqq",  # connection, number, session
        BROKER_ID: "s",
    }.items()
}
_BLOB = _parts("ss?")


class Message(NamedTuple):
    """A message as the broker holds it; fields in the order of MessageMarshaller."""

    command: int
    answered: bool
    producer: Structure | None
    destination: Structure | None
    transaction: Structure | None
    original_destination: Structure | None
    message_id: Structure | None
    original_transaction: Structure | None
    group: str | None
    group_sequence: int
    correlation_id: str | None
    persistent: bool
    expiration: int
    priority: int
    reply_to: Structure | None
    timestamp: int
    type: str | None
    content: bytes | None
    properties: bytes | None
    data_structure: Structure | None
    target_consumer: Structure | None
    compressed: bool
    redelivery_counter: int
    broker_path: list[Structure | None] | None
    arrival: int
    user: str | None
    by_bridge: bool
    droppable: bool
    cluster: list[Structure | None] | None
    broker_in: int
    broker_out: int
    first_of_group: bool
    blob_url: str | None = None
    blob_type: str | None = None
    blob_deleted: bool = False


class Dispatch(NamedTuple):
    """A message for a consumer; `message` is None at the end of a browse. `name` is the MessageId as it came,
    which an acknowledgement repeats. `kind` is that of the message, `marshalled` the message without its
    content."""

    consumer: int
    kind: int
    name: bytes
    message: Message | None
    marshalled: bytes = b""
    message_id: Structure | None = None
    unreadable: str | None = None


def dispatch(frame: bytes, seen: Seen | None = None) -> Dispatch:
    """Return a MessageDispatch, from its type on. Raises UnreadableError; a message that has a name and
    cannot be read to its end gives a Dispatch with the reason."""
    cursor = Cursor(frame, 6, seen)
    try:
        consumer, _ = cursor.fields(_PLACES)
        number = consumer.fields[2] if consumer else 0
        return _read_message(cursor, number) if cursor.flag() else Dispatch(number, 0, b"", None)
    except _ENDS as error:
        raise UnreadableError(_BREAKS_OFF) from error


def _read_message(cursor: Cursor, consumer: int) -> Dispatch:
    kind, begin = cursor.number(_U8), cursor.at
    if kind not in CLASSES:
        raise UnreadableError(f"it holds a message of type {kind}")
    to_name, to_content, to_end = _MESSAGE
    values = cursor.fields(to_name)
    before = cursor.at
    message_id = cursor.structure()
    name = cursor.data[before : cursor.at]
    try:
        values += [message_id, *cursor.fields(to_content)]
        content = cursor.at
        values.append(cursor.sequence())
        behind = cursor.at
        values += cursor.fields(to_end)
        if kind == BLOB:
            values += cursor.fields(_BLOB)
        marshalled = cursor.data[begin:content] + cursor.data[behind : cursor.at]
        cursor.number(_I32)  # redeliveries, which the message says itself
    except (UnreadableError, *_ENDS) as error:
        why = error if isinstance(error, UnreadableError) else _BREAKS_OFF
        return Dispatch(consumer, kind, name, None, b"", message_id, f"{NOT_UNDERSTOOD}: {why}")
    return Dispatch(consumer, kind, name, Message(*values), marshalled, message_id)


NOT_UNDERSTOOD = "a message that is not understood"


def _decode(data: bytes) -> str:
    """Decode Java's modified UTF-8; what is none, half a surrogate pair among it, is replaced."""
    text = text_of(data)
    return data.decode("utf-8", "replace") if text is None else text


class Value(NamedTuple):
    """A property, or an entry of a Map or Stream. `kind` is Java's name of the type; `raw` as it came, empty
    for what is inside another."""

    kind: str
    value: Any
    raw: bytes


_MAP, _LIST = 11, 12
_KINDS: Mapping[int, tuple[str, Callable[[Cursor, int], Any]]] = {
    0: ("null", lambda _cursor, _depth: None),
    1: ("boolean", lambda cursor, _: cursor.flag()),
    2: ("byte", lambda cursor, _: cursor.number(_I8)),
    3: ("char", lambda cursor, _: chr(cursor.number(_U16))),
    4: ("short", lambda cursor, _: cursor.number(_I16)),
    5: ("int", lambda cursor, _: cursor.number(_I32)),
    6: ("long", lambda cursor, _: cursor.number(_I64)),
    7: ("double", lambda cursor, _: cursor.number(_DOUBLE)),
    8: ("float", lambda cursor, _: cursor.number(_FLOAT)),
    9: ("string", lambda cursor, _: cursor.utf()),
    10: ("bytes", lambda cursor, _: cursor.take(cursor.number(_I32))),
    _MAP: ("map", lambda cursor, depth: _map(cursor, depth + 1)),
    _LIST: ("list", lambda cursor, depth: [_value(cursor, depth + 1) for _ in range(cursor.number(_I32))]),
    13: ("string", lambda cursor, _: _decode(cursor.take(cursor.number(_I32)))),
}


def _value(cursor: Cursor, depth: int = 0) -> Value:
    begin = cursor.at
    code = cursor.data[begin]
    if code not in _KINDS:
        raise UnreadableError(f"it holds a value of type {code}")
    if depth >= _MAX_DEPTH and code in (_MAP, _LIST):
        return Value(_DEEP, _flat(cursor), b"")
    cursor.at = begin + 1
    kind, read = _KINDS[code]
    value = read(cursor, depth)
    return Value(kind, value, b"" if depth else cursor.data[begin : cursor.at])


def _flat(cursor: Cursor) -> str:
    """Return a map or a list as Java prints it, which takes no more room on the stack the deeper it nests."""
    parts: list[str] = []
    opened: list[tuple[int, Iterator[int]]] = []
    """What is open: whether it is a map or a list, and what is still to come of it."""
    while True:
        code = cursor.data[cursor.at]
        if code in (_MAP, _LIST):
            cursor.at += 1
            count = cursor.number(_I32)
            opened.append((code, iter(range(count))))
            parts.append(_OPENS[code])
        else:
            parts.append(java_text(_value(cursor)))
        while (following := next(opened[-1][1], None)) is None:
            parts.append(_CLOSES[opened.pop()[0]])
            if not opened:
                return "".join(parts)
        parts.append(", " if following else "")
        if opened[-1][0] == _MAP:
            parts.append(f"{cursor.utf()}=")


_OPENS, _CLOSES = {_MAP: "{", _LIST: "["}, {_MAP: "}", _LIST: "]"}


def _map(cursor: Cursor, depth: int = 0) -> dict[str, Value]:
    return {cursor.utf(): _value(cursor, depth) for _ in range(cursor.number(_I32))}


def map_of(data: bytes | None) -> dict[str, Value]:
    """Return properties, or the content of a MapMessage. Raises UnreadableError."""
    try:
        return _map(Cursor(data)) if data else {}
    except _ENDS as error:
        raise UnreadableError(_BREAKS_OFF) from error


def value_of(data: bytes) -> Value | None:
    """Return the one value that this is; None where it is none, or not whole."""
    cursor = Cursor(data)
    try:
        value = _value(cursor)
    except (UnreadableError, *_ENDS):
        return None
    return value if cursor.at == len(data) else None


def stream_of(data: bytes) -> Iterator[Value]:
    """Yield the entries of a StreamMessage's content. Raises UnreadableError."""
    cursor = Cursor(data)
    try:
        while cursor.at < len(data):
            yield _value(cursor)
    except _ENDS as error:
        raise UnreadableError(_BREAKS_OFF) from error


def readable(body: bytes, properties: Mapping[str, str]) -> tuple[Any, str] | None:
    """Return the entries of a Map or Stream message, as JSON has them; of an Object message its class alone,
    for to deserialize is to run what its sender wants. Raises ValueError where the body is damaged."""
    kind = properties.get("class")
    if PACKED in properties:
        return None, "compressed content, which is damaged or unpacks to too much"
    if kind == "map":
        return {name: _as_json(value) for name, value in map_of(body).items()}, "a MapMessage"
    if kind == "stream":
        return [_as_json(value) for value in stream_of(body)], "a StreamMessage"
    if kind == "object":
        return None, f"an ObjectMessage of {_class_of(body)}, which is not deserialized"
    return None


def _as_json(value: Value) -> Any:
    if value.kind in ("float", "double"):
        return shown_real(float(java_text(value)))
    if value.kind == "map":
        return {name: _as_json(each) for name, each in value.value.items()}
    if value.kind == "list":
        return [_as_json(each) for each in value.value]
    if value.kind == _DEEP:
        return "(nested too deeply to be shown)"
    return value.value.hex() if value.kind == "bytes" else value.value


_OBJECT = re.compile(rb"\xac\xed\x00\x05(?:[su]r(..)|(t))", re.DOTALL)
"""Java's stream protocol: an object or array begins with its class, a string with its length."""


def _class_of(body: bytes) -> str:
    found = _OBJECT.match(body)
    if found is None:
        return "an unknown class"
    if found[2]:
        return "java.lang.String"
    return _decode(body[found.end() : found.end() + int.from_bytes(found[1])])


def body_of(kind: int, message: Message, modified: bool = False) -> bytes:
    """Return the content, unpacked where it is compressed; of a text without the length before it, as the
    broker shows it to STOMP clients: in UTF-8, or (`modified`) in Java's form of it. A text that is no
    Unicode, for whose half pairs STOMP has a question mark, stays in that form. Raises UnreadableError."""
    content = message.content or b""
    if message.compressed and content:
        content = _inflate_bytes(content) if kind == BYTES else _inflate(content)
    if kind != TEXT:
        return content
    body = content[4:]
    if modified or body.isascii() or not (b"\xed" in body or b"\xc0\x80" in body):
        return body
    text = text_of(body)
    return body if text is None else text.encode("utf-8")


def _inflate_bytes(content: bytes) -> bytes:
    """Cut at the length before it: the stream goes on with what else was in the writer's buffer."""
    return _inflate(content[4:])[: int.from_bytes(content[:4])]


_FLUSHED = b"\0\0\xff\xff"
"""How a stream ends that was flushed and not closed, as Artemis' are (OpenWireMessageConverter)."""


def _inflate(data: bytes) -> bytes:
    """Inflate what ActiveMQ's Deflater wrote (ActiveMQTextMessage, ActiveMQBytesMessage#doCompress)."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, most_unpacked(len(data)))
    except zlib.error as error:
        raise UnreadableError(f"its compressed content is damaged ({error})") from error
    if not (unpacking.eof or (data.endswith(_FLUSHED) and not unpacking.unconsumed_tail)):
        raise UnreadableError("its compressed content breaks off, or unpacks to too much")
    return plain


def java_text(value: Value) -> str:
    """Return the value as Java prints it, which is how STOMP shows it."""
    return _PRINTED.get(value.kind, str)(value.value)


@lru_cache(4096)
def _java_float(value: float, single: bool = False) -> str:
    """Double.toString and Float.toString: the fewest digits that name it, plain from 1e-3 up to 1e7."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    shortest = repr(value)
    if single:
        single_value = _as_single(value)
        shortest = next(
            text for n in range(1, 10) if _as_single(float(text := f"{value:.{n}g}")) == single_value
        )
    sign, digits, exponent = _digits(shortest)
    if digits == "0" or -3 <= exponent < 7:
        return sign + _plain(digits, exponent)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _as_single(value: float) -> float:
    """Return the nearest number of four bytes."""
    try:
        nearest: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    except OverflowError:
        return float("inf")
    return nearest


def _digits(text: str) -> tuple[str, str, int]:
    """Sign, significant digits, and the power of ten of the first."""
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, power = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    return sign, digits.rstrip("0") or "0", exponent


def _plain(digits: str, exponent: int) -> str:
    if digits == "0":
        return "0.0"
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{whole}.{digits[exponent + 1 :] or '0'}"


_PRINTED: Mapping[str, Callable[[Any], str]] = {
    "null": lambda _: "null",
    "boolean": lambda value: "true" if value else "false",
    "double": _java_float,
    "float": lambda value: _java_float(value, single=True),
    "string": lambda value: str(value),
    "bytes": lambda value: value.hex(),
    "map": lambda values: "{" + ", ".join(f"{k}={java_text(v)}" for k, v in values.items()) + "}",
    "list": lambda values: "[" + ", ".join(map(java_text, values)) + "]",
}
