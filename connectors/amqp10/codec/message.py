"""A message of AMQP 1.0 in its sections: kept as it came, read, edited and put together again. No I/O.

A message is header, annotations, properties, application properties, body and footer, each a described value
(OASIS AMQP 1.0, part 3.2). The *block* of a letter is the encoded message without its content: of a body that
is one data section (for Artemis, also one value that is text or binary) the octets are taken out and all else
stays, the section's size too; any other body is taken out whole, and stays encoded. Whatever is not edited
stays byte for byte.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from dlq.connectors.amqp10.codec import typed
from dlq.connectors.amqp10.codec.values import (
    NOTHING,
    NULL,
    TRUE,
    Budget,
    Value,
    as_text,
    described_value,
    long,
    mapping,
    read,
    read_if_possible,
    sequence,
    sized_32,
    span,
    string,
    symbol,
    ubyte,
)
from dlq.core.errors import UsageError
from dlq.core.headers.frameworks import Inside

HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
_BODY = (DATA, SEQUENCE, VALUE)
_SYMBOLS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_PROPERTY_NAMES = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
    "content_encoding", "absolute_expiry_time", "creation_time", "group_id",
    "group_sequence", "reply_to_group_id",
)  # fmt: skip
_MARK = b"\x00\x53"
"""How a block begins: with a section whose code is small. No block of AMQP 0-9-1 does: bits of its flags that
are set then are reserved."""
_LISTS, _MAPS = {0x45: 1, 0xC0: 3, 0xD0: 9}, {0xC1: 3, 0xD1: 9}
"""Constructors, and where what they hold begins."""
_OCTETS = (0xA0, 0xB0, 0xA1, 0xB1)
"""Constructors of binary and text."""
_NO_HEADER = described_value(HEADER, sequence([]))
DURABLE, PRIORITY, TTL, FIRST_ACQUIRER, FAILURES = range(5)
"""Places of the header's fields."""


class _Section(NamedTuple):
    code: int
    start: int
    value: int
    """Where the value begins, behind the descriptor."""
    end: int


class Parts(NamedTuple):
    """What a block says, with types; of maps the pairs in their order."""

    header: list[Value]
    annotations: list[tuple[Value, Value]]
    properties: dict[str, Value]
    application: list[tuple[Value, Value]]

    def field(self, place: int) -> int | None:
        """Return a number or a truth value of the header."""
        found = self.header[place].value if place < len(self.header) else None
        return found if isinstance(found, int) else None

    def is_redelivered(self) -> bool:
        """Tell whether it failed before, or is not with the first who got it."""
        return self.field(FIRST_ACQUIRER) is False or bool(self.field(FAILURES))

    def texts(self) -> dict[str, str]:
        """Return the properties as text, by their names."""
        known = {name: value for name, value in self.properties.items() if value != NOTHING}
        return {
            name: f"urn:uuid:{UUID(bytes=value.value)}" if value.kind == "uuid" else as_text(value)
            for name, value in known.items()
        }


def is_block(block: bytes | None) -> bool:
    """Return whether these are sections of AMQP 1.0, and no property block of AMQP 0-9-1."""
    return block is not None and block.startswith(_MARK)


def split(message: bytes, values: bool = False) -> tuple[bytes, bytes, bool]:
    """Return (block, body, whether the body is encoded) of a whole message; `values`: of one that is text or
    binary the octets are taken out, too. Raises ValueError."""
    found = [section for section in sections(message) if section.code in _BODY]
    is_value = values and found and found[0].code == VALUE and message[found[0].value] in _OCTETS
    if len(found) == 1 and (found[0].code == DATA or is_value):
        begin, end = _content(message, found[0].value), found[0].end
    else:
        begin, end = (found[0].start, found[-1].end) if found else (len(message), len(message))
    block = message[:begin] + message[end:]
    encoded = not found or begin == found[0].start
    return block if is_block(block) else _NO_HEADER + block, message[begin:end], encoded


def join_message(block: bytes, body: bytes) -> bytes:
    """Return the whole message again; a body that was edited has another size. Raises ValueError."""
    place = len(block)
    for section in sections(block, whole=False):
        if section.code in (DATA, VALUE):
            at, size = section.end, _size(block, section.value)
            long = sized_32(block[section.value] | 0x10, len(body))
            known = block[:at] if size == len(body) else block[: section.value] + long
            return known + body + block[at:]
        if section.code == FOOTER:
            place = section.start
    if any(section.code not in _BODY for section in sections(body)):
        raise ValueError("its body must be encoded sections of AMQP 1.0")
    return block[:place] + body + block[place:]


def sections(data: bytes, whole: bool = True) -> Iterator[_Section]:
    """Yield the sections. Raises ValueError. `whole`: a data section is followed by its octets; in a block it
    is not, and neither is a value, which is there only where its octets were taken out."""
    at = 0
    while at < len(data):
        if data[at]:
            raise ValueError("no section of an AMQP 1.0 message")
        descriptor, begin = read(data, at + 1)
        code = _SYMBOLS.get(descriptor.value, 0) if descriptor.kind == "symbol" else descriptor.value
        code = code if isinstance(code, int) else 0
        end = _content(data, begin) if code in (DATA, VALUE) and not whole else span(data, begin)
        yield _Section(code, at, begin, end)
        at = end


def _content(data: bytes, at: int) -> int:
    """Return where the octets of the binary at `at` begin."""
    if data[at] not in _OCTETS:
        raise ValueError("a data section that holds no binary")
    return at + 1 + (4 if data[at] & 0x10 else 1)


def _size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 1 : _content(data, at)], "big")


def parts(block: bytes) -> Parts:
    """Return what a block says; a value of it that cannot be shown is opaque. Raises ValueError."""
    found = {section.code: block[section.value : section.end] for section in sections(block, whole=False)}
    budget = Budget(len(block))
    return Parts(
        _list(found.get(HEADER), budget),
        _pairs(found.get(ANNOTATIONS), budget),
        dict(zip(_PROPERTY_NAMES, _list(found.get(PROPERTIES), budget), strict=False)),
        _pairs(found.get(APPLICATION), budget),
    )


def _list(value: bytes | None, budget: Budget) -> list[Value]:
    if not value or value[0] not in _LISTS:
        return []
    return [read_if_possible(item, 0, budget)[0] for item in _raw_items(value)]


def _pairs(value: bytes | None, budget: Budget) -> list[tuple[Value, Value]]:
    if not value or value[0] not in _MAPS:
        return []
    pairs, at = [], _MAPS[value[0]]
    while at < len(value):
        key, at = read_if_possible(value, at, budget)
        item, at = read_if_possible(value, at, budget)
        pairs.append((key, item))
    return pairs


def body_of(encoded: bytes) -> list[Value]:
    """Return the values of encoded body sections. Raises ValueError."""
    budget = Budget(len(encoded))
    return [read(encoded, section.value, budget)[0] for section in sections(encoded)]


def stable(block: bytes, changes: Callable[[str], bool]) -> list[bytes]:
    """Return what stays the same at each delivery, for a letter's identity: the bare message, and its
    annotations in the order of their names, but for those that change. Raises ValueError."""
    kept: list[bytes] = []
    for section in sections(block, whole=False):
        if section.code == ANNOTATIONS:
            pairs = _raw_pairs(block[section.value : section.end])
            kept += sorted(pair for name, pair in pairs if not changes(name))
        elif section.code not in (HEADER, DELIVERY):
            kept.append(block[section.start : section.end])
    return kept


def _raw_pairs(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (name, encoded key and value) of an encoded map."""
    if not data or data[0] not in _MAPS:
        raise ValueError("a section that should hold a map holds none")
    at, budget = _MAPS[data[0]], Budget(len(data))
    while at < len(data):
        start = at
        key, at = read_if_possible(data, at, budget)
        at = span(data, at)
        yield as_text(key), data[start:at]


def _raw_items(data: bytes) -> Iterator[bytes]:
    """Yield the encoded elements of an encoded list."""
    at = _LISTS.get(data[0], 1)
    while at < len(data):
        start, at = at, span(data, at)
        yield data[start:at]


_Scalar = str | int | bytes
"""What is set in a block: a text, a number, or an encoded value."""


def edit(
    block: bytes,
    drop_headers: Callable[[str], bool] = lambda _name: False,
    set_headers: Mapping[str, _Scalar] = MappingProxyType({}),
) -> bytes:
    """Return the block with some annotations and application properties taken out or set; all others byte for
    byte. What is set (bytes: encoded already) replaces an annotation of its name, else it is an application
    property. Raises ValueError."""
    known = parts(block)
    annotations = {as_text(key) for key, _ in known.annotations} - {
        as_text(key) for key, _ in known.application
    }
    annotated = {name: value for name, value in set_headers.items() if name in annotations}
    others = {name: value for name, value in set_headers.items() if name not in annotations}
    return _rebuilt(
        block,
        {
            ANNOTATIONS: _map_with(ANNOTATIONS, symbol, drop_headers, annotated),
            APPLICATION: _map_with(APPLICATION, string, drop_headers, others),
        },
    )


def edit_typed(block: bytes, drop_headers: Callable[[str], bool], changed: Mapping[str, object]) -> bytes:
    """Return the same with values of JSON, each in the type that it had. Raises ValueError for a damaged
    block, UsageError for what cannot be said."""
    known = {as_text(key): value for key, value in (*parts(block).annotations, *parts(block).application)}
    encoded = {
        name: _encode(f"header {name!r}", value, known.get(name, NOTHING)) for name, value in changed.items()
    }
    return edit(block, drop_headers, encoded)


def _encode(what: str, value: object, like: Value) -> bytes:
    try:
        return typed.encode_value(value, like)
    except ValueError as error:
        raise UsageError(f"{what}: {error}") from error


_TYPES = {
    "user_id": "binary", "content_type": "symbol", "content_encoding": "symbol",
    "absolute_expiry_time": "timestamp", "creation_time": "timestamp", "group_sequence": "uint",
}  # fmt: skip
"""Of properties that a letter does not have yet; any other is a text (part 3.2.4)."""


def edit_properties(block: bytes, before: Mapping[str, str], wanted: Mapping[str, str]) -> bytes:
    """Return the block with other properties, by the names of PROPERTY_NAMES and each in the type that it
    had; `before` is how they are shown. Raises ValueError for a damaged block, UsageError for what cannot be
    said."""
    known = parts(block).properties
    changed = {
        name: wanted.get(name) for name in {**before, **wanted} if before.get(name) != wanted.get(name)
    }
    if unknown := sorted(changed.keys() - set(_PROPERTY_NAMES)):
        raise UsageError(f"AMQP 1.0 has no property {unknown[0]!r} that can be edited; leave it out")
    encoded = {
        name: NULL if text is None else _encode(f"property {name!r}", text, _type_of(name, known))
        for name, text in changed.items()
    }
    return _rebuilt(block, {PROPERTIES: lambda value: _set_properties(value, encoded)})


def _type_of(name: str, known: Mapping[str, Value]) -> Value:
    value = known.get(name, NOTHING)
    return Value(_TYPES.get(name, "string"), None) if value == NOTHING else value


def _set_properties(value: bytes, given: Mapping[str, bytes]) -> bytes:
    there = dict(zip(_PROPERTY_NAMES, _raw_items(value) if value else (), strict=False))
    items = [given.get(name, there.get(name, NULL)) for name in _PROPERTY_NAMES]
    while items and items[-1] == NULL:
        del items[-1]
    return described_value(PROPERTIES, sequence(items))


def set_back(block: bytes, fixed: Mapping[str, Inside]) -> bytes:
    """Return the block with the counts among these headers set to zero, each in the type that it has. Raises
    ValueError."""
    known = parts(block)
    values = {as_text(key): value for key, value in (*known.annotations, *known.application)}
    zero = {
        name: typed.encode_value("0", values[name])
        for name, inside in fixed.items()
        if name in values and inside.is_zero(()) and as_text(values[name]).isdecimal()
    }
    return edit(block, set_headers=zero) if zero else block


NOT_SENT = ("user_id", "absolute_expiry_time")
"""Properties that RabbitMQ would refuse, or that end the letter at once."""


def to_send(
    block: bytes,
    drop_headers: Callable[[str], bool],
    provenance: Mapping[str, _Scalar],
    annotated: Mapping[str, _Scalar] = MappingProxyType({}),
    instead: Mapping[str, bytes] = MappingProxyType(dict.fromkeys(NOT_SENT, NULL)),
) -> bytes:
    """Return the block of a replay: durable, without expiry, user and what a hop left on it; `provenance` and
    `annotated` are set as application properties and as annotations, `instead` are encoded values of
    properties that the letter has. Raises ValueError."""
    known = parts(block)
    changes = {
        HEADER: lambda _value: _durable(known.header),
        DELIVERY: lambda _value: b"",
        ANNOTATIONS: _map_with(ANNOTATIONS, symbol, drop_headers, annotated),
        APPLICATION: _map_with(APPLICATION, string, drop_headers, provenance),
    }
    if any(known.properties.get(name, NOTHING) != NOTHING for name in instead):
        changes[PROPERTIES] = lambda value: _with_properties(value, instead)
    return _rebuilt(block, changes)


_Change = Callable[[bytes], bytes]
"""The encoded value of a section, empty where there is none -> the whole section anew."""


def _rebuilt(block: bytes, changes: Mapping[int, _Change]) -> bytes:
    """Return the sections in their order, some of them changed, or made where they are missing."""
    found = {section.code: section for section in sections(block, whole=False)}
    built = []
    for code in sorted({*found, *changes}):
        section = found.get(code)
        if code in changes:
            built.append(changes[code](block[section.value : section.end] if section else b""))
        elif section:
            built.append(block[section.start : section.end])
    return b"".join(built)


def _map_with(
    code: int, key: Callable[[str], bytes], drop: Callable[[str], bool], given: Mapping[str, _Scalar]
) -> _Change:
    def change(value: bytes) -> bytes:
        pairs = _raw_pairs(value) if value else ()
        kept = [pair for name, pair in pairs if name not in given and not drop(name)]
        kept += [key(name) + _encode_scalar(wanted) for name, wanted in given.items()]
        return described_value(code, mapping(kept)) if kept else b""

    return change


def _encode_scalar(value: _Scalar) -> bytes:
    if isinstance(value, bytes):
        return value
    return string(value) if isinstance(value, str) else long(value)


def _durable(header: list[Value]) -> bytes:
    """Encode the header of a durable message; of the original one only the priority goes back."""
    priority = header[1] if len(header) > 1 else NOTHING
    return described_value(
        HEADER, sequence([TRUE, ubyte(priority.value) if priority.kind == "ubyte" else NULL])
    )


def _with_properties(value: bytes, instead: Mapping[str, bytes]) -> bytes:
    items = [
        instead.get(name, item) if item != NULL else NULL
        for name, item in zip(_PROPERTY_NAMES, _raw_items(value), strict=False)
    ]
    return described_value(PROPERTIES, sequence(items))
