"""Messages that came to Artemis by AMQP 1.0, as records, and as they go back.

Artemis keeps them as they came and adds annotations of its own (`x-opt-ORIG-ADDRESS`); to STOMP and OpenWire
it shows a conversion, which loses types, and some it cannot convert at all. A record has the message's block
(`codec.message`) as `raw_properties`, so that its bare message goes back byte for byte, and names where and
when it died as STOMP does (`_AMQ_ORIG_ADDRESS`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from dlq.connectors.activemq.amqp.codec import BLOCK
from dlq.connectors.activemq.look.jolokia import PROPERTY
from dlq.connectors.activemq.records.frames import Place, artemis_origin
from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.message import Parts
from dlq.connectors.amqp10.codec.values import NOTHING, NULL, Value, as_text, plain, string, to_json
from dlq.connectors.base import ReadRequest
from dlq.connectors.records import make_record
from dlq.core.clock import datable
from dlq.core.headers.failure_headers import HeaderScrub, Keep, restart, taken_away
from dlq.core.headers.provenance import REPLAY_PREFIX
from dlq.core.identity import content_id, frame
from dlq.core.record import FLAG_AMQP10_BODY, Record

_CLASS = "amqp-1.0"
"""What `properties` call the class of such a message, which is none of JMS's."""
_TOLD = re.compile(r"x-opt-(ORIG-(?:ADDRESS|QUEUE|MESSAGE-ID|ROUTING-TYPE)|ACTUAL-EXPIRY)")
_AS_TOLD = re.compile(r"_AMQ_(?:ORIG_(?:ADDRESS|QUEUE|MESSAGE_ID|ROUTING_TYPE)|ACTUAL_EXPIRY)")
_NOT_SENT = re.compile(
    rf"{_TOLD.pattern}|x-opt-(?:routing-type|delivery-time|delivery-delay|ingress-time|CONNECTION-ID)|_AMQ_DUPL_ID"
    rf"|{REPLAY_PREFIX}.*"
)
"""Annotations that the broker left, or that would delay it again, and the id that makes it a duplicate."""
_JMS_DESTINATION = "x-opt-jms-dest"


def record_maker(request: ReadRequest, place: Place) -> Callable[[bytes], Record]:
    """Return a function that makes the record of a whole message. It raises ValueError."""
    first = frame(request.source.name.encode(), place.queue.encode())

    def make(encoded: bytes) -> Record:
        block, body, is_encoded = message.split(encoded, values=True)
        parts = message.parts(block)
        headers, properties = headers_of(parts), properties_of(parts)
        origin_kind, origin = artemis_origin(
            *map(headers.get, ("_AMQ_ORIG_ROUTING_TYPE", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE"))
        )
        physical_id = headers.get("_AMQ_ORIG_MESSAGE_ID", "")
        message_id = properties.get("message_id") or physical_id
        digest = sha256(body).hexdigest()
        stable = message.stable(block, lambda _name: False)
        return make_record(
            request,
            place.kind,
            content_id(physical_id.encode(), *stable, digest.encode(), after=first),
            body,
            headers,
            properties,
            version=place.version,
            node=place.node,
            digest=digest,
            dead_letter_queue=place.queue,
            message_id=message_id,
            physical_id=physical_id,
            correlation_id=properties.get("correlation_id"),
            origin_kind=origin_kind,
            origin=origin,
            published_at=_time(parts.properties.get("creation_time")),
            dead_at=_micros(headers.get("_AMQ_ACTUAL_EXPIRY")),
            expires_at=_time(parts.properties.get("absolute_expiry_time")),
            redelivered=parts.is_redelivered(),
            raw_properties=block,
            content_type=properties.get("content_type"),
            content_encoding=properties.get("content_encoding"),
            persistent=parts.field(message.DURABLE) is True,
            priority=parts.field(message.PRIORITY),
            flags=FLAG_AMQP10_BODY if is_encoded else None,
        )

    return make


def headers_of(parts: Parts) -> dict[str, str]:
    """Application properties and annotations as text, by name; of two with one name the property. What the
    broker left is named as STOMP shows it, and comes from its annotations alone: what a sender calls so
    where the broker left nothing is shown as that sender's property."""
    told = {as_text(key): as_text(value) for key, value in parts.annotations}
    own = {as_text(key): as_text(value) for key, value in parts.application}
    brokers = {_header_name(name): text for name, text in told.items() if _TOLD.fullmatch(name)}
    every = {_header_name(name): text for name, text in (*told.items(), *own.items())} | brokers
    forged = {f"{PROPERTY}{name}" for name in brokers}
    return {name: text for name, text in every.items() if name not in forged}


def _header_name(written: str) -> str:
    if _AS_TOLD.fullmatch(written):
        return f"{PROPERTY}{written}"
    found = _TOLD.fullmatch(written)
    return f"_AMQ_{found[1].replace('-', '_')}" if found else written


def properties_of(parts: Parts) -> dict[str, str]:
    """Return properties as text by their AMQP names, and the class."""
    return {"class": _CLASS, **parts.texts()}


def _time(value: Value | None) -> int | None:
    milliseconds = plain(value) if value is not None else None
    return datable(milliseconds * 1000) if isinstance(milliseconds, int) and milliseconds > 0 else None


def _micros(milliseconds: str | None) -> int | None:
    return (
        datable(int(milliseconds) * 1000)
        if milliseconds and re.fullmatch(r"\d{1,15}", milliseconds)
        else None
    )


def is_of_amqp(record: Record) -> bool:
    """Return whether it goes back by AMQP 1.0."""
    return record.broker_kind == "artemis" and message.is_block(record.raw_properties)


def why_lost(record: Record) -> str | None:
    """Return why a message that came by AMQP 1.0 cannot go back: it has lost its block."""
    if record.properties.get("class") != _CLASS or message.is_block(record.raw_properties):
        return None
    return "it came by AMQP 1.0, and its sections, which would go back as they came, are damaged or not there"


def message_to_send(record: Record, provenance: Mapping[str, str], keep_headers: Keep) -> bytes:
    """Return the whole message of a replay: its bare message as it was, but for what is taken away, an
    expiry, where the broker had sent it to, and its marks. Raises ValueError."""
    block = record.raw_properties or b""
    parts = message.parts(block)
    headers = headers_of(parts)
    taken = restart(headers, keep_headers)
    instead = {"absolute_expiry_time": NULL}
    origin = headers.get("_AMQ_ORIG_ADDRESS")
    if origin or parts.properties.get("to", NOTHING).value == record.dead_letter_queue:
        instead["to"] = _to_field(origin, parts)
    block = message.set_back(block, taken.fixed)
    sent = message.to_send(block, lambda name: _is_gone(name, taken), provenance, instead=instead)
    return message.join_message(sent, record.body)


def _is_gone(name: str, taken: HeaderScrub) -> bool:
    return bool(_NOT_SENT.fullmatch(name)) or name in taken.gone


def _to_field(address: str | None, parts: Parts) -> bytes:
    """Return the `to` that it had: Artemis writes there to which address it sends the dead, whatever their
    queue is called (2.56.0). Clients of JMS name the destination there, others that send to one address
    mostly nothing."""
    is_jms = any(as_text(key) == _JMS_DESTINATION for key, _ in parts.annotations)
    return string(address) if is_jms and address else NULL


def stripped_names(record: Record, keep_headers: Keep) -> list[str]:
    """Return what is not sent again, in words."""
    parts = message.parts(record.raw_properties or b"")
    headers = headers_of(parts)
    named = [as_text(key) for key, _ in (*parts.annotations, *parts.application)]
    has_expiry = parts.properties.get("absolute_expiry_time", NOTHING) != NOTHING
    return [
        *(name for name in named if _NOT_SENT.fullmatch(name)),
        *taken_away(headers, restart(headers, keep_headers)),
        *(["absolute-expiry-time"] if has_expiry else []),
        *(["ttl"] if parts.field(message.TTL) else []),
    ]


_ENCODINGS = {
    "0": "its missing body becomes an empty one", "2": "its data section becomes a value of JMS",
    "3": "its sequence is lost", "4": "its null becomes empty data",
    "6": "its binary value becomes a data section", "7": "its map is lost", "8": "its list is lost",
}  # fmt: skip
"""JMS_AMQP_ORIGINAL_ENCODING as STOMP shows it (AMQPMessageSupport) -> what a replay by STOMP makes of it."""
_PARTS = {
    "NATIVE_MESSAGE_ID": "message-id", "JMS_AMQP_ContentType": "content-type",
    "JMS_AMQP_ContentEncoding": "content-encoding", "JMSXUserID": "user-id",
    "JMS_AMQP_ReplyToGroupID": "reply-to-group-id",
}  # fmt: skip


def what_would_change(record: Record) -> str | None:
    """Say what a replay would change in a message of AMQP 1.0 that STOMP has shown; None for any other."""
    if record.broker_kind != "artemis" or message.is_block(record.raw_properties):
        return None
    headers = record.headers
    if not _tell_of_amqp(tuple(headers)):
        return None
    lost = [part for name, part in _PARTS.items() if name in headers]
    told = f"without its {', '.join(lost)}, " if lost else ""
    body = _ENCODINGS.get(headers.get("JMS_AMQP_ORIGINAL_ENCODING", ""))
    encoding = f", and {body}" if body else ""
    came = "it came by AMQP 1.0 and was read by STOMP"
    return f"{came}: it would go back {told}with all properties as text{encoding}"


@lru_cache(4096)
def _tell_of_amqp(names: tuple[str, ...]) -> bool:
    """Return whether names of headers tell of AMQP; letters of one kind all have the same names."""
    return any(name.startswith("JMS_AMQP_") or name == "NATIVE_MESSAGE_ID" for name in names)


def edit_headers(block: bytes, drop: Callable[[str], bool], changed: Mapping[str, object]) -> bytes:
    """Return the block with other headers (`dlq.core.brokers.Plugin.edit_headers`). Raises ValueError where
    it is none of AMQP, UsageError for what cannot be said."""
    if not message.is_block(block):
        raise ValueError("no message of AMQP 1.0")
    return message.edit_typed(block, lambda name: drop(_header_name(name)), changed)


def edit_properties(block: bytes, properties: Mapping[str, str]) -> bytes:
    """Return the block with these properties and no others (`dlq.core.brokers.Plugin.edit_properties`).
    Raises ValueError where it is none of AMQP, UsageError for what cannot be said."""
    if not message.is_block(block):
        raise ValueError("no message of AMQP 1.0")
    return message.edit_properties(block, properties_of(message.parts(block)), properties)


def readable(body: bytes, properties: Mapping[str, str]) -> tuple[Any, str] | None:
    """Return the value or values of a body that is encoded; None for any other."""
    if properties.get("class") != _CLASS and BLOCK not in properties:
        return None
    try:
        found: Sequence[Any] = [to_json(value) for value in message.body_of(body)] if body else []
    except ValueError:
        return None
    note = "an encoded AMQP 1.0 section"
    return (found[0] if len(found) == 1 else found, note) if found else None
