"""Letters whose body, and not their headers, remembers that they failed: sent as they are, a consumer takes
the envelope for the order, or the first hiccup for the last one.

Sources: PhpSerializer of Symfony Messenger (the whole envelope with its stamps, with slashes added), Celery's
message protocol 1 (task, retries), Error of EasyNetQ; and JSON by hand around a payload.
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from dlq.core.failure_headers import by_hand
from dlq.core.record import Record

_STAMPS = re.compile(
    rb"Symfony\\{1,4}Component\\{1,4}Messenger\\{1,4}Stamp\\{1,4}"
    rb"(ErrorDetails|SentToFailureTransport|Redelivery)Stamp"
)
_HINT = re.compile(rb'"[^"]*(?:ret|err|exc|fail|orig|attempt|deliver)[^"]*"\s*:', re.IGNORECASE)
"""In the JSON of an envelope; most bodies have none, and are not taken apart."""
_LARGEST = 2**24
"""Bytes of a body that is taken apart."""
_PAYLOADS = ("payload", "body", "message", "data", "value", "content", "originalmessage", "originalpayload")
_EASYNETQ = {"RoutingKey", "Exchange", "Exception", "Message", "BasicProperties"}


def memory_in_body(record: Record) -> str | None:
    """What of a failure the body of a letter remembers, in words; None where it is not seen to."""
    body = record.body.lstrip()
    if body.startswith((b"O:", b"Tz")):
        return _of_symfony(body)
    if not body.startswith(b"{") or len(body) > _LARGEST or not _HINT.search(body):
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _of_json(value, record.headers)


def _of_symfony(body: bytes) -> str | None:
    """Base64 is what is no UTF-8."""
    if body.startswith(b"Tz"):
        try:
            body = b64decode(body)
        except ValueError:
            return None
    found = _STAMPS.search(body)
    if found is None:
        return None
    return f"its body is an envelope of Symfony Messenger with a {found[1].decode()}Stamp, which counts there"


def _of_json(value: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    if value.keys() >= _EASYNETQ:
        return "its body is an Error of EasyNetQ, which holds the message inside"
    retries = value.get("retries")
    if "task" in value and "id" in value and isinstance(retries, int) and retries and "task" not in headers:
        return f"its body is a task of Celery's protocol 1, which counts {retries} retries there"
    payload = next((name for name in value if name.lower().replace("_", "") in _PAYLOADS), None)
    beside = {name: one if isinstance(one, str) else json.dumps(one) for name, one in value.items()}
    beside.pop(payload or "", None)
    told = by_hand(beside) if payload is not None else None
    if told is None or not (told.origins or told.counted) or not told.errors:
        return None
    return f"its body is an envelope of a failure ({', '.join(told.names[:3])}) around {payload!r}"
