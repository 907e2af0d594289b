"""Letters that AMQP 1.0 alone carries, as records; and which letters those are.

Their columns say the same as RabbitMQ's own view for 0-9-1 clients does (deps/rabbit/src/mc_amqpl.erl), as
far as there is one; what 0-9-1 has no word for keeps its name of AMQP 1.0.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any

from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.message import Parts
from dlq.connectors.amqp10.codec.values import NOTHING, Value, as_text, plain, to_json
from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.console.lines import death_columns
from dlq.connectors.rabbitmq.records import x_death
from dlq.connectors.records import make_record
from dlq.core.clock import datable
from dlq.core.headers.message_ids import logged_id
from dlq.core.identity import content_id, frame
from dlq.core.record import FLAG_AMQP10_BODY, Death, Record

ENCODED_BODY = "amqp-1.0"
"""What RabbitMQ says in the property `type` of a body that is an encoded section."""
_DEATHS = "x-opt-deaths"
_EXCHANGE, _ROUTING_KEY = "x-exchange", "x-routing-key"
_OF_A_DELIVERY = frozenset({"x-delivery-count", "x-acquired-count"})
_ENVELOPE = frozenset({_EXCHANGE, _ROUTING_KEY})
_CONVERTED = frozenset(
    {
        "null", "boolean", "ubyte", "byte", "ushort", "short", "uint", "int", "ulong", "long", "float",
        "double", "timestamp", "binary", "string", "symbol", "decimal32", "decimal64", "decimal128",
    }
)  # fmt: skip
"""Types that RabbitMQ converts, or leaves out."""
_NOT_IN_LISTS = ("ulong", "array")
_NOT_FINITE = "not finite"
_NOT_BEFORE_4_2 = ("decimal32", "decimal64", "decimal128", _NOT_FINITE)
"""Left out since rabbitmq-server's pull request 14209 (July 2025; seen on 4.0.5 and 4.3.6)."""
_KEYS = ("string", "symbol", "binary")
_SHORT_STRING = 255
"""Octets that one of AMQP 0-9-1 may have."""


def is_carried_by_0_9_1(parts: Parts, version: tuple[int, ...]) -> bool:
    """Return whether RabbitMQ delivers the letter over 0-9-1, too. Where this says no, every connection that
    would get it is closed (541), so no letter is ever archived in both forms: a test asks a broker of each
    type."""
    unlike = _NOT_BEFORE_4_2 if version < (4, 2) else ()
    headers = [value for key, value in parts.annotations if _is_short(key) and _becomes_a_header(key)]
    headers += [value for key, value in parts.application if _is_short(key)]
    types = [parts.properties.get(name, NOTHING) for name in ("content_type", "content_encoding")]
    return all(_is_converted(one, unlike) for one in headers) and all(map(_is_short, types))


def _becomes_a_header(annotation: Value) -> bool:
    return str(annotation.value).startswith("x-") and annotation.value != _DEATHS


def _is_converted(value: Value, unlike: Sequence[str]) -> bool:
    kind, inner = value
    if kind in ("list", "array"):
        return all(item.kind not in _NOT_IN_LISTS and _is_converted(item, unlike) for item in inner)
    if kind == "map":
        return all(
            key.kind in _KEYS and _is_short(key) and _is_converted(item, unlike) for key, item in inner
        )
    if kind in ("float", "double") and not isfinite(inner):
        return _NOT_FINITE not in unlike
    return kind in _CONVERTED and kind not in unlike


def _is_short(value: Value) -> bool:
    return len(str(value.value or "").encode()) <= _SHORT_STRING


def record_maker(request: ReadRequest, broker_version: str) -> Callable[[bytes], Record]:
    """Return a function that makes the record of a whole message. It raises ValueError."""
    source, queue = request.source, request.source.queue or ""
    place = frame(source.name.encode(), queue.encode())

    def make(encoded: bytes) -> Record:
        block, body, is_encoded = message.split(encoded)
        parts = message.parts(block)
        annotations = {as_text(key): value for key, value in parts.annotations}
        headers, properties = headers_of(parts), properties_of(parts, is_encoded)
        digest = sha256(body).hexdigest()
        message_id = logged_id(properties.get("message_id"), headers, body)
        stable = message.stable(block, _OF_A_DELIVERY.__contains__)
        died = annotations.get(_DEATHS, NOTHING)
        columns = death_columns(deaths(died), headers)
        return make_record(
            request,
            "rabbitmq",
            content_id(*stable, digest.encode(), after=place),
            body,
            headers,
            properties,
            version=broker_version,
            digest=digest,
            dead_letter_queue=queue,
            message_id=message_id,
            correlation_id=properties.get("correlation_id"),
            exchange=_text(annotations.get(_EXCHANGE)),
            routing_key=_text(annotations.get(_ROUTING_KEY)),
            published_at=_time(plain(parts.properties.get("creation_time", NOTHING))),
            redelivered=parts.is_redelivered(),
            raw_properties=block,
            content_type=properties.get("content_type"),
            content_encoding=properties.get("content_encoding"),
            persistent=properties.get("delivery_mode") == "2",
            priority=parts.field(message.PRIORITY),
            flags=FLAG_AMQP10_BODY if is_encoded else None,
            **{**columns, "dead_at": _last_death(died) or columns["dead_at"]},
        )

    return make


def headers_of(parts: Parts) -> dict[str, str]:
    """Return application properties and annotations as text; of two with one name the property."""
    named = {as_text(key): as_text(value) for key, value in parts.annotations}
    named |= {as_text(key): as_text(value) for key, value in parts.application}
    return {name: text for name, text in named.items() if name not in _ENVELOPE}


def properties_of(parts: Parts, is_encoded: bool) -> dict[str, str]:
    """Return properties and header as text, by RabbitMQ's names for 0-9-1 clients where it has one."""
    found = parts.texts()
    if (created := _time(plain(parts.properties.get("creation_time", NOTHING)))) is not None:
        found["timestamp"] = str(created // 1_000_000)
    found["delivery_mode"] = "2" if parts.field(message.DURABLE) else "1"
    for name, place in (("priority", message.PRIORITY), ("expiration", message.TTL)):
        if (number := parts.field(place)) is not None:
            found[name] = str(number)
    return found | ({"type": ENCODED_BODY} if is_encoded else {})


def deaths_of(parts: Parts) -> tuple[Death, ...]:
    """Return the history that a letter's annotations hold."""
    return deaths(next((value for key, value in parts.annotations if as_text(key) == _DEATHS), NOTHING))


def deaths(annotation: Value) -> tuple[Death, ...]:
    """Return the history in `x-opt-deaths`, most recent first; its times are the first of each pair."""
    entries = plain(annotation) if annotation.kind in ("array", "list") else []
    return x_death.deaths([_entry(entry) for entry in entries if isinstance(entry, Mapping)])


def _entry(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry as `x-death` has it."""
    return {**entry, "time": entry.get("first-time"), "original-expiration": entry.get("ttl")}


def _last_death(annotation: Value) -> int | None:
    """Return when a letter died last, which `x-death` does not tell."""
    entries = plain(annotation) if annotation.kind in ("array", "list") else []
    times = [_time(entry.get("last-time")) for entry in entries if isinstance(entry, Mapping)]
    return max((time for time in times if time is not None), default=None)


def _text(value: Value | None) -> str | None:
    return None if value is None else as_text(value)


def _time(milliseconds: Any) -> int | None:
    return datable(milliseconds * 1000) if isinstance(milliseconds, int) else None


def readable(body: bytes, properties: Mapping[str, str]) -> tuple[object | None, str] | None:
    """Return what is in a body that is encoded, for people (`dlq.core.brokers.Plugin.readable`)."""
    if properties.get("type") != ENCODED_BODY:
        return None
    note = "an encoded AMQP 1.0 section"
    try:
        found = [to_json(value) for value in message.body_of(body)]
    except ValueError:
        return None, note
    return (found[0] if len(found) == 1 else found), note
