"""Messages that came to Classic by AMQP 1.0: it stores them encoded, as the body of a BytesMessage.

A record shows the message and not its encoding: `body` is its content, and the block around it
(`codec.message`) is one of the `properties`, so that all of it goes back as it was. Its id is made of the
stored body.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.values import NOTHING, as_text
from dlq.core.record import Record

NATIVE = "JMS_AMQP_NATIVE"
"""The property by which Classic knows them; its value is true."""
BLOCK = "block of amqp-1.0"
"""What `properties` call the message without its content, in hexadecimal digits."""


class Shown(NamedTuple):
    """What is in a stored body."""

    body: bytes
    properties: Mapping[str, str]
    content_type: str | None
    content_encoding: str | None
    message_id: str | None = None


def decode_stored(stored: bytes, properties: Mapping[str, str]) -> Shown:
    """Return the message; as it is stored where it cannot be read, or put together again."""
    try:
        block, body, _ = message.split(stored, values=True)
        if message.join_message(block, body) != stored:
            return Shown(stored, properties, None, None)
        told = message.parts(block).properties
    except ValueError:
        return Shown(stored, properties, None, None)
    known = {name: as_text(value) for name, value in told.items() if value != NOTHING}
    kept = {**properties, BLOCK: block.hex()}
    return Shown(body, kept, *map(known.get, ("content_type", "content_encoding", "message_id")))


def stored_body(record: Record) -> bytes:
    """Return the body as Classic has it. Raises ValueError where an edited one makes no message."""
    block = record.properties.get(BLOCK)
    return record.body if block is None else message.join_message(bytes.fromhex(block), record.body)
