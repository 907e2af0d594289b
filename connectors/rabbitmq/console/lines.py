"""From a line of JSONL that no export wrote to what `records` makes of a delivery."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.jsonl.format import body_of
from dlq.connectors.jsonl.values import Texts, count_of, integer
from dlq.connectors.rabbitmq.amqp091.codec.edits import typed_block
from dlq.connectors.rabbitmq.amqp091.codec.fields import instant
from dlq.connectors.rabbitmq.records.x_death import deaths, first_death, rejections
from dlq.core.clock import from_iso
from dlq.core.headers.message_ids import logged_id
from dlq.core.record import FLAG_AMQP10_BODY, Death


def death_columns(history: tuple[Death, ...], headers: Texts) -> dict[str, Any]:
    """Return origin and times from a death history (most recent first) and the x-first-death headers."""
    queue = headers.get("x-first-death-queue")
    first = first_death(history, queue, headers.get("x-first-death-reason"))
    queue = queue or first.queue
    times = [death.time for death in history if death.time is not None]
    return {
        "deaths": history,
        "origin_kind": "queue" if queue else None,
        "origin": queue,
        "origin_exchange": first.exchange,
        "origin_routing_key": next(iter(first.routing_keys), None),
        "first_dead_at": min(times, default=None),
        "dead_at": max(times, default=None),
        "attempts": rejections(history),
    }


def columns(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    """Return the columns of a record; None where the line does not say."""
    mode = properties.get("delivery_mode")
    given = document.get("headers", {})
    # An AMQP 1.0 client sees the same history under another name.
    history = deaths(given.get("x-death")) or deaths(given.get("x-opt-deaths"))
    found = {
        **death_columns(history, headers),
        "message_id": logged_id(properties.get("message_id"), headers, body_of(document)),
        "correlation_id": properties.get("correlation_id"),
        "content_type": properties.get("content_type"),
        "content_encoding": properties.get("content_encoding"),
        "published_at": _instant(properties.get("timestamp")),
        "priority": count_of(properties.get("priority")),
        "persistent": None if mode is None else mode == "2",
        "flags": FLAG_AMQP10_BODY if properties.get("type") == "amqp-1.0" else None,
    }
    own = {"message_id": document["message_id"]} if isinstance(document.get("message_id"), str) else {}
    return {**found, "raw_properties": typed_block(given, {**own, **properties})}


def _instant(text: str | None) -> int | None:
    number = integer(text, 64)
    return instant(number) if number is not None else from_iso(text or "")
