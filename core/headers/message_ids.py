"""The id by which an application knows a message, and which stands in its logs.

A broker's own id of a message (Artemis numbers them) changes when it is moved, and no application sees it;
frameworks that leave AMQP's message-id empty keep theirs elsewhere: Celery (app/amqp.py, `as_task_v2`) and
Watermill (watermill-amqp, `DefaultMessageUUIDHeaderKey`) in a header, Dramatiq (message.py), Celery's first
protocol and Laravel (Queue::createStringPayload) in a JSON body.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from dlq.core.text import encodable

_OF_OPENWIRE, _OF_AMQP = "__HDR_MESSAGE_ID", "NATIVE_MESSAGE_ID"
"""What Artemis calls the id of an OpenWire client (OpenWireConstants), and of an AMQP client."""
_TYPED = re.compile(r"ID:AMQP_(NO_PREFIX|STRING|ULONG|UUID|BINARY):(.*)", re.DOTALL)
"""How JMS writes an id of AMQP that does not begin with `ID:` (AMQPMessageIdHelper)."""
_WRITTEN: Mapping[str, Callable[[str], str]] = {
    "UUID": "urn:uuid:{}".format,
    "BINARY": lambda digits: bytes.fromhex(digits).decode("utf-8", "backslashreplace"),
}
_IN_HEADERS: Sequence[tuple[str, str]] = (
    ("task", "id"),
    ("_watermill_message_uuid", "_watermill_message_uuid"),
)
_IN_BODIES: Sequence[tuple[str, str]] = (
    ("actor_name", "message_id"),
    ("displayName", "uuid"),
    ("task", "id"),
)
"""A field that marks the framework's letters, and the one that holds the id."""
_MARKS = tuple(f'"{mark}"'.encode() for mark, _ in _IN_BODIES)
_LONGEST_BODY = 1 << 20
"""Bytes up to which a body is read for an id."""


def of_client(openwire: str | None, amqp: str | None, own: str) -> str:
    """Return the id that the client gave a message of Artemis', by whichever protocol it came; else the
    broker's."""
    return openwire or (_of_amqp(amqp) if amqp else own)


def client_id(headers: Mapping[str, str]) -> str | None:
    """Return the id that a client gave a message of Artemis' with these headers; None where it gave none."""
    return of_client(headers.get(_OF_OPENWIRE), headers.get(_OF_AMQP), "") or None


def _of_amqp(shown: str) -> str:
    """Return an id as AMQP's clients know it."""
    found = _TYPED.fullmatch(shown)
    if found is None:
        return shown
    with suppress(ValueError):
        return _WRITTEN.get(found[1], str)(found[2])
    return shown


def logged_id(told: str | None, headers: Mapping[str, str], body: bytes) -> str | None:
    """Return what the message calls itself (`told`), else what its framework does; None: nothing says it."""
    if told:
        return told
    for mark, name in _IN_HEADERS:
        if mark in headers and headers.get(name):
            return headers[name]
    return _in_body(body)


def _in_body(body: bytes) -> str | None:
    if not body.startswith(b"{") or len(body) > _LONGEST_BODY or not any(mark in body for mark in _MARKS):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = (document.get(name) for mark, name in _IN_BODIES if document.get(mark))
    return next((encodable(one) for one in found if isinstance(one, str) and one), None)
