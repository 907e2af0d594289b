"""What frameworks of Node leave on a letter: Rascal, and the channels of Moleculer.

Sources: SubscriberError and Subscription of Rascal; the adapters and constants of Moleculer's channels.
"""

import json
from collections.abc import Mapping
from typing import Any

from dlq.analyzers.rules.frameworks import parked_finding
from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    once_per_letter,
    plus,
    whole,
    whole_characters,
)


@once_per_letter
def _rascal_record(letter: Letter) -> Mapping[str, Any]:
    """Rascal's own header: originalQueue, recovery by queue, error; empty where there is none."""
    try:
        found = json.loads(letter.headers.get("rascal") or "null")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return whole_characters(value) if isinstance(value, str) and value else None


def _rascal(letter: Letter, _: Facts) -> Finding | None:
    """a header rascal with an error or a recovery: it was republished until its attempts were used up, or
    nacked for good (Rascal's SubscriberError)"""
    told = _rascal_record(letter)
    error, recovery = _dict(told.get("error")), _dict(told.get("recovery"))
    if not error and not recovery:
        return None
    queue = _text(told.get("originalQueue")) or next(iter(recovery), None)
    republished = _dict(recovery.get(queue or "")).get("republished")
    message, code = _text(error.get("message")), _text(error.get("code"))
    parts = (f"rascal: {message or 'no message'}", f"code {code}" if code else None)
    found = parked_finding(
        letter,
        ", ".join(text for text in parts if text),
        attempts=plus(republished, 1) if type(republished) is int else None,
        origin=queue,
        error_class=_text(error.get("name")),
        error_message=message,
        error_text=_text(error.get("stack")),
    )
    exchange, key = _text(told.get("originalExchange")), _text(told.get("originalRoutingKey"))
    return found._replace(origin_exchange=exchange, origin_routing_key=key)


def _moleculer(letter: Letter, _: Facts) -> Finding | None:
    """x-original-channel with x-original-group: a channel's handler failed as often as it may (Moleculer)"""
    headers = letter.headers
    channel, group = headers.get("x-original-channel"), headers.get("x-original-group")
    if not channel or not group:
        return None
    is_queue = letter.broker_kind == "rabbitmq"
    message = headers.get("x-error-message")
    found = parked_finding(
        letter,
        f"x-error-message: {message}" if message else f"x-original-channel: {channel}",
        attempts=plus(whole(headers.get("x-redelivered-count")), 1),
        origin=f"{group}.{channel}" if is_queue else channel,
        error_class=headers.get("x-error-name"),
        error_message=message,
        error_text=headers.get("x-error-stack"),
    )
    return found if is_queue else found._replace(origin_kind="topic")


RULES: tuple[Rule, ...] = (
    Rule(_rascal, "application_error", "framework"),
    Rule(_moleculer, "application_error", "framework"),
)
