"""From OpenWire's messages to the frames that the broker would show to STOMP clients, and thus to records.

A letter has one record id, whichever way it was read: so its headers are those of Classic's translator
(activemq-stomp, FrameTranslator.Helper#copyStandardHeadersFromMessageToFrame, LegacyFrameTranslator). What
STOMP hides is in the record's `properties`, by the same names as Jolokia's; `raw_properties` is the
marshalled message without its content. A user's property with the name of one of STOMP's headers takes that
one's place there: the id is made so, the record tells both, the property among its `properties`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.activemq.look.jolokia import PROPERTY, TYPE_OF
from dlq.connectors.activemq.openwire.codec.messages import (
    BLOB,
    BYTES,
    CLASSES,
    NOT_UNDERSTOOD,
    PACKED,
    QUEUE,
    TEMP_QUEUE,
    TEMP_TOPIC,
    TEXT,
    TOPIC,
    Dispatch,
    Message,
    Structure,
    UnreadableError,
    Value,
    body_of,
    java_text,
    map_of,
)  # fmt: skip
from dlq.connectors.activemq.records.frames import Maker
from dlq.connectors.activemq.stomp.codec import MESSAGE, OF_STOMP, Frame, escape
from dlq.core.columns import column, with_columns
from dlq.core.record import NOTHING, Record

_PREFIXES = {
    QUEUE: "/queue/", TOPIC: "/topic/", TEMP_QUEUE: "/remote-temp-queue/", TEMP_TOPIC: "/remote-temp-topic/",
}  # fmt: skip
CLASS, NO_CONTENT = "class", "no content"
"""What a record's `properties` call its JMS class, and content that is null, which is not empty."""
RAW_OF = "value of "
"""... and a property that has no text, as OpenWire writes it, in hexadecimal digits."""
BLOB_URL, BLOB_TYPE, BLOB_DELETED = "blob url", "blob type", "blob deleted by broker"
KINDS = {name: kind for kind, name in CLASSES.items()}
MARSHALLED = KINDS.keys() - {"text", "bytes"}
"""Classes that OpenWire alone carries."""
_WITHOUT_TEXT = ("null", "bytes", "map", "list")
_PAIR, _ASTRAL = b"\xed", re.compile("[\U00010000-\U0010ffff]")
"""Classic's STOMP shows half a surrogate pair of a stored property as U+FFFD. The record id is made of what
it shows; `headers` tell the truth."""
_SHORT = 256


def _line(name: str, text: str) -> str:
    return f"{escape(name)}:{escape(text)}"


_short_line = lru_cache(4096)(_line)
"""Most are the same from message to message."""


def records_of(make: Maker, letters: Sequence[tuple[Dispatch, Frame]]) -> Sequence[Record]:
    """Return records of letters, with what `frame_of` has made of each."""
    records = make([frame for _, frame in letters])
    if not any(_is_untrue(letter.message) for letter, _ in letters):
        return records
    true = make([_true_frame(letter, frame) for letter, frame in letters])
    ids = column(records, "record_id")
    texts = [_texts_with_pairs(letter.message) for letter, _ in letters]
    if not any(texts):
        return with_columns(true, record_id=ids)
    headers = [{**shown, **own} for shown, own in zip(column(true, "headers"), texts, strict=True)]
    return with_columns(true, record_id=ids, headers=headers)


def _is_untrue(message: Message | None) -> bool:
    """Return whether STOMP shows something else than the letter's headers."""
    if message is None or not message.properties:
        return False
    return _PAIR in message.properties or bool(properties_of(message).shadowing)


def _true_frame(letter: Dispatch, frame: Frame) -> Frame:
    """Return what STOMP would show, if it showed a letter's own fields."""
    message = letter.message
    told = properties_of(message) if message is not None else None
    if message is None or told is None or not told.shadowing:
        return frame
    shadowing = {f"{PROPERTY}{name}": told.shown[name] for name in told.shadowing}
    own = {name: text for name, text in told.shown.items() if name not in told.shadowing}
    head = _head({**_standard(message), **_length(letter.kind, frame.body), **own})
    return frame._replace(head=head, properties={**(frame.properties or {}), **shadowing})


def _texts_with_pairs(message: Message | None) -> Mapping[str, str]:
    """Return the texts among a message's properties, where one may hold half a surrogate pair, but for those
    with names of STOMP's headers."""
    if message is None or not message.properties or _PAIR not in message.properties:
        return NOTHING
    values, shadowing = map_of(message.properties), properties_of(message).shadowing
    texts = ((name, value.value) for name, value in values.items() if value.kind == "string")
    return {name: text for name, text in texts if name not in shadowing}


def frame_of(letter: Dispatch, modified: bool = False) -> Frame:
    """Return a letter as STOMP would show it, a text in `modified` UTF-8 where it would be. Raises
    UnreadableError: why the letter must stay in its queue."""
    message = letter.message
    if message is None:
        raise UnreadableError(letter.unreadable or NOT_UNDERSTOOD)
    try:
        told = properties_of(message)
    except UnreadableError as error:
        raise UnreadableError(f"{NOT_UNDERSTOOD}: {error}") from error
    body, is_packed = _body(letter.kind, message, modified)
    head = _head({**_standard(message), **told.shown, **_length(letter.kind, body)})
    unshown = hidden_properties(letter.kind, message, told) | ({PACKED: "true"} if is_packed else {})
    return Frame(MESSAGE, head, body, False, letter.marshalled, unshown, _died_at(message, told))


def _head(headers: Mapping[str, str | None]) -> bytes:
    lines = [
        _short_line(name, text) if len(text) < _SHORT else _line(name, text)
        for name, text in headers.items()
        if text is not None
    ]
    return "\n".join(lines).encode("utf-8", "replace")


def _length(kind: int, body: bytes) -> dict[str, str]:
    """Return the one header that a property of its name does not replace."""
    return {"content-length": str(len(body))} if kind == BYTES else {}


def _body(kind: int, message: Message, modified: bool) -> tuple[bytes, bool]:
    """Return the body, and whether it is the content as it came: damaged, or what unpacks to too much."""
    try:
        return body_of(kind, message, modified), False
    except UnreadableError:
        return message.content or b"", True


def _standard(message: Message) -> dict[str, str | None]:
    return {
        "destination": _stomp_destination(message.destination),
        "message-id": message_id(message.message_id),
        "correlation-id": message.correlation_id,
        "expires": str(message.expiration),
        "redelivered": "true" if message.redelivery_counter > 0 else None,
        "priority": str(message.priority),
        "reply-to": _stomp_destination(message.reply_to),
        "timestamp": str(message.timestamp),
        "type": message.type,
        "JMSXUserID": message.user,
        "original-destination": _stomp_destination(message.original_destination),
        "persistent": "true" if message.persistent else None,
    }


def _stomp_destination(destination: Structure | None) -> str | None:
    """Return a destination as the broker shows it to STOMP clients."""
    if destination is None:
        return None
    return f"{_PREFIXES.get(destination.kind, '')}{destination.fields[0] or ''}"


def message_id(name: Structure | None) -> str:
    """MessageId#toString."""
    if name is None:
        return ""
    text, producer, number, _ = name.fields
    if text is not None:
        return text if text.startswith("ID:") else f"ID:{text}"
    connection, value, session = producer.fields if producer else ("", 0, 0)
    return f"{connection}:{session}:{value}:{number}"


class _Properties(NamedTuple):
    """A message's properties: the text of each as STOMP shows it, what it hides of them, and which it shows
    in the place of a header of its own."""

    shown: Mapping[str, str]
    hidden: Mapping[str, str]
    shadowing: Collection[str]


def properties_of(message: Message) -> _Properties:
    """Read the properties, once where messages in a row have the same. Raises UnreadableError."""
    marshalled = message.properties or b""
    return (_few if len(marshalled) < _FEW_BYTES else _properties)(marshalled)


def _properties(marshalled: bytes) -> _Properties:
    values = map_of(marshalled)
    types = {f"{TYPE_OF}{name}": one.kind for name, one in values.items() if one.kind != "string"}
    raw = {f"{RAW_OF}{name}": one.raw.hex() for name, one in values.items() if one.kind in _WITHOUT_TEXT}
    shown = {name: _stomp_text(one) for name, one in values.items()}
    return _Properties(shown, types | raw, [name for name in shown if name in OF_STOMP])


_few, _FEW_BYTES = lru_cache(256)(_properties), 4096


def _stomp_text(value: Value) -> str:
    text = value.value if value.kind == "string" else java_text(value)
    return text if text.isascii() else _ASTRAL.sub("\ufffd\ufffd", text)


def header_text(value: Value) -> str:
    """Return the text of a property as `headers` have it."""
    return _stomp_text(value).encode("utf-8", "replace").decode()


def _died_at(message: Message, told: _Properties) -> str | None:
    """Return when the broker dead-lettered a message: it takes a letter in again then, and writes the
    property that a later move takes away (BrokerSupport#doResend, RegionBroker#sendToDeadLetterQueue)."""
    dead_lettered = message.original_destination is not None and "originalExpiration" in told.shown
    return str(message.broker_in) if dead_lettered else None


def hidden_properties(kind: int, message: Message, properties: _Properties) -> dict[str, str]:
    """Return what STOMP does not show of a message, as a record's `properties`."""
    found: dict[str, str] = {CLASS: CLASSES[kind]}
    if message.group is not None:
        found |= {"JMSXGroupID": message.group, "JMSXGroupSeq": str(message.group_sequence)}
    if message.broker_path:
        found["broker path"] = ", ".join(each.fields[0] or "" for each in message.broker_path if each)
    if message.redelivery_counter > 0:
        found["redelivery counter"] = str(message.redelivery_counter)
    if message.content is None and kind in (TEXT, BYTES):
        found[NO_CONTENT] = "true"
    if kind == BLOB:
        blob = {BLOB_URL: message.blob_url, BLOB_TYPE: message.blob_type}
        found |= {name: text for name, text in blob.items() if text is not None}
        found[BLOB_DELETED] = str(message.blob_deleted).lower()
    return {**found, **properties.hidden}
