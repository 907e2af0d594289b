"""Messages as RabbitMQ's management prints them: what `POST /api/queues/VHOST/NAME/get` answers.

The form is rabbit_mgmt_wm_queue_get.erl's (deps/rabbitmq_management/src): an array of objects with
payload_bytes, redelivered, exchange, routing_key, message_count, properties, payload and payload_encoding.
`rabbitmqadmin get -f raw_json` and `-f pretty_json` print the same (deps/rabbitmq_management/bin).
Which queue the message lay in is not among it.
"""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dlq.connectors.jsonl.console_formats import Printed, Unreadable, collect, objects, text_of
from dlq.connectors.jsonl.format import body_fields


def management(text: str) -> Printed:
    """Return the messages of one or more answers."""
    if text.lstrip().startswith("+-"):
        return Printed([], [(1, "a table leaves out headers; let rabbitmqadmin print it with -f raw_json")])
    return collect(objects(text), _letter)


def _letter(got: dict[str, Any]) -> dict[str, Any]:
    properties = dict(_table(got, "properties"))
    headers = _table(properties, "headers")
    properties.pop("headers", None)
    return {
        "broker_kind": "rabbitmq",
        "exchange": text_of(got, "exchange"),
        "routing_key": text_of(got, "routing_key"),
        "headers": headers,
        "properties": properties,
        **body_fields(_body(got)),
    }


def _table(got: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object; the API writes an empty one as [], too."""
    value = got.get(name) or {}
    if not isinstance(value, dict):
        raise Unreadable(f"{name} must be an object")
    return value


_ENCODINGS: Mapping[str, Callable[[str], bytes]] = {
    "string": str.encode,
    "base64": partial(base64.b64decode, validate=True),
}


def _body(got: Mapping[str, Any]) -> bytes:
    """Return the payload, which is whole where it is as long as the queue had it."""
    payload, encoding = text_of(got, "payload"), text_of(got, "payload_encoding")
    size = got.get("payload_bytes")
    if encoding not in _ENCODINGS:
        raise Unreadable(f"unknown payload_encoding {encoding!r}")
    if type(size) is not int:
        raise Unreadable("it has no payload_bytes, so that nothing shows whether the payload is whole")
    try:
        body = _ENCODINGS[encoding](payload)
    except ValueError as error:
        raise Unreadable(f"the payload is no {encoding}") from error
    if len(body) != size:
        raise Unreadable(f"the payload is not whole: {len(body)} bytes of {size}")
    return body
