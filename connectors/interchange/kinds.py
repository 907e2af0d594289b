"""What each broker kind's headers and properties say of the record's columns, for letters from a file.

One function a kind: (the line's object, headers, properties) -> columns. The wire connectors know more;
a line that an export wrote carries those columns itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

from dlq.connectors.interchange.values import count_of, integer
from dlq.connectors.rabbitmq.amqp.fields import instant
from dlq.connectors.rabbitmq.x_death import deaths, rejections
from dlq.core.clock import datable, from_iso
from dlq.core.record import FLAG_AMQP10_BODY, Death

Texts = Mapping[str, str]


def _from_millis(text: str | None) -> int | None:
    number = integer(text, 64)
    return datable(number * 1000) if number else None


def _instant(text: str | None) -> int | None:
    number = integer(text, 64)
    return instant(number) if number is not None else from_iso(text or "")


def death_columns(history: tuple[Death, ...], headers: Texts) -> dict[str, Any]:
    """Origin and times from a death history (most recent first) and the x-first-death headers."""
    first = history[-1] if history else Death()
    queue = headers.get("x-first-death-queue") or first.queue
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


def _rabbitmq(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    mode = properties.get("delivery_mode")
    return {
        **death_columns(deaths(document.get("headers", {}).get("x-death")), headers),
        "message_id": properties.get("message_id"),
        "correlation_id": properties.get("correlation_id"),
        "content_type": properties.get("content_type"),
        "content_encoding": properties.get("content_encoding"),
        "published_at": _instant(properties.get("timestamp")),
        "priority": count_of(properties.get("priority")),
        "persistent": None if mode is None else mode == "2",
        "flags": FLAG_AMQP10_BODY if properties.get("type") == "amqp-1.0" else None,
    }


def _bare(destination: str | None) -> tuple[str | None, str | None]:
    """(kind, name) of a STOMP destination: `/queue/orders` is the queue `orders`."""
    for kind in ("queue", "topic"):
        if destination and destination.startswith((f"/{kind}/", f"{kind}://")):
            return kind, destination.removeprefix(f"/{kind}/").removeprefix(f"{kind}://")
    return ("queue", destination) if destination else (None, None)


def _stomp(_document: Mapping[str, Any], headers: Texts, _properties: Texts) -> dict[str, Any]:
    return {
        "message_id": headers.get("message-id"),
        "physical_id": headers.get("message-id"),
        "correlation_id": headers.get("correlation-id"),
        "published_at": _from_millis(headers.get("timestamp")),
        "expires_at": _from_millis(headers.get("expires")),
        "failure_text": headers.get("dlqDeliveryFailureCause"),
        "priority": count_of(headers.get("priority")),
        "persistent": headers["persistent"] == "true" if "persistent" in headers else None,
        "redelivered": headers["redelivered"] == "true" if "redelivered" in headers else None,
        "content_type": headers.get("content-type"),
    }


def _activemq(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    kind, name = _bare(headers.get("original-destination"))
    return {**_stomp(document, headers, properties), "origin_kind": kind, "origin": name}


def _artemis(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    queue = headers.get("_AMQ_ORIG_QUEUE") or headers.get("_AMQ_ORIG_ADDRESS")
    columns = {
        **_stomp(document, headers, properties),
        "origin_kind": "queue" if queue else None,
        "origin": queue,
        "dead_at": _from_millis(headers.get("_AMQ_ACTUAL_EXPIRY")),
    }
    return columns | (
        {"physical_id": headers["_AMQ_ORIG_MESSAGE_ID"]} if "_AMQ_ORIG_MESSAGE_ID" in headers else {}
    )


def _rocketmq(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    topic = str(document.get("topic") or document.get("queue") or "")
    is_letter = topic.startswith("%DLQ%")
    origin = properties.get("RETRY_TOPIC") if is_letter else properties.get("REAL_TOPIC")
    return {
        "origin_kind": "topic" if origin else None,
        "origin": origin,
        "origin_group": topic.removeprefix("%DLQ%") if is_letter else properties.get("PGROUP"),
        "message_id": properties.get("UNIQ_KEY") or headers.get("msgId"),
        "physical_id": headers.get("msgId"),
        "queue_id": count_of(headers.get("queueId")),
        "keys": tuple((properties.get("KEYS") or "").split()),
        "attempts": count_of(headers.get("reconsumeTimes")),
        "flags": integer(headers.get("sysFlag")),
        "published_at": _from_millis(headers.get("bornTimestamp")),
        "dead_at": _from_millis(headers.get("storeTimestamp")),
    }


FIELDS_OF_KIND: Mapping[str, Callable[[Mapping[str, Any], Texts, Texts], dict[str, Any]]] = {
    "rabbitmq": _rabbitmq,
    "activemq": _activemq,
    "artemis": _artemis,
    "rocketmq": _rocketmq,
}
