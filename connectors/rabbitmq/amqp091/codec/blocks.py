"""Property blocks made anew, for letters that came without one. No I/O."""

from collections.abc import Mapping
from typing import Any

from dlq.connectors.rabbitmq.amqp091.codec import edits, typed
from dlq.core.clock import from_iso


def block_of(headers: Mapping[str, str | int | bytes], properties: Mapping[str, str | int]) -> bytes:
    """Return the block of these headers (bytes: encoded already) and properties, whose timestamp is in
    seconds or ISO 8601. Raises ValueError."""
    timestamp = str(properties.get("timestamp", "0"))
    micros = None if timestamp.isdigit() else from_iso(timestamp)
    told = {} if micros is None else {"timestamp": micros // 1_000_000}
    return edits.edit(edits.EMPTY, set_headers=headers, set_properties={**properties, **told})


def typed_block(headers: Mapping[str, Any], properties: Mapping[str, str | int]) -> bytes | None:
    """Return the same of headers in JSON's types, which AMQP knows, too; None where all are texts, or AMQP
    cannot say them."""
    if all(isinstance(value, str) for value in headers.values()):
        return None
    try:
        return block_of({name: typed.encode_field(value) for name, value in headers.items()}, properties)
    except (ValueError, RecursionError):
        return None
