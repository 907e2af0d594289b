"""From a line of JSONL that no export wrote to what `records` makes of a frame."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.activemq.records.frames import artemis_origin, bare_destination
from dlq.connectors.jsonl.values import Texts, count_of, from_millis
from dlq.core.headers.message_ids import client_id


def _stomp(_document: Mapping[str, Any], headers: Texts, _properties: Texts) -> dict[str, Any]:
    return {
        "message_id": headers.get("message-id"),
        "physical_id": headers.get("message-id"),
        "correlation_id": headers.get("correlation-id"),
        "published_at": from_millis(headers.get("timestamp")),
        "expires_at": from_millis(headers.get("expires")),
        "failure_text": headers.get("dlqDeliveryFailureCause"),
        "priority": count_of(headers.get("priority")),
        "persistent": headers["persistent"] == "true" if "persistent" in headers else None,
        "redelivered": headers["redelivered"] == "true" if "redelivered" in headers else None,
        "content_type": headers.get("content-type"),
    }


def classic_columns(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    """Return the columns of a record of Classic; None where the line does not say."""
    kind, name = bare_destination(headers.get("original-destination"))
    return {**_stomp(document, headers, properties), "origin_kind": kind, "origin": name}


def artemis_columns(document: Mapping[str, Any], headers: Texts, properties: Texts) -> dict[str, Any]:
    """Return the columns of a record of Artemis; None where the line does not say."""
    names = ("_AMQ_ORIG_ROUTING_TYPE", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE")
    kind, name = artemis_origin(*map(headers.get, names))
    columns = {
        **_stomp(document, headers, properties),
        "origin_kind": kind,
        "origin": name,
        "dead_at": from_millis(headers.get("_AMQ_ACTUAL_EXPIRY")),
        "message_id": client_id(headers) or headers.get("message-id"),
    }
    return columns | (
        {"physical_id": headers["_AMQ_ORIG_MESSAGE_ID"]} if "_AMQ_ORIG_MESSAGE_ID" in headers else {}
    )
