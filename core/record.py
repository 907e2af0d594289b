"""The record: one dead letter, exactly as it lay in its queue.

The field names are the Parquet columns of the archive (`dlq.archive.schema`). Times are microseconds
since the epoch, UTC; `None` means that the broker did not say. A named tuple, because a pull makes
one for every message and nothing else is both this cheap and immutable.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NOTHING: Mapping[str, str] = {}

FLAG_AMQP10_BODY = 1
"""RabbitMQ `flags`: the body is an encoded AMQP 1.0 section (property type = 'amqp-1.0'), not text."""
FLAG_INNER_NUL = 1
"""STOMP `flags`: the body came without content-length and holds a NUL, so its end is a conclusion."""


class Death(NamedTuple):
    """One entry of a death history, most recent first in `Record.deaths` (RabbitMQ: x-death).

    Its `count` hides a tuple's own method of that name, which nobody asks of a death.
    """

    reason: str | None = None
    queue: str | None = None
    exchange: str | None = None
    routing_keys: tuple[str, ...] = ()
    count: int | None = None  # type: ignore[assignment]
    time: int | None = None
    original_expiration: str | None = None


class Record(NamedTuple):
    """One captured message: body, every header and property as stored, and where it was found.

    `record_id` is the hex digest that `dlq.core.identity` makes. `headers` and `properties` are for
    analysis (values as text, nested ones as JSON); `raw_properties` is the exact encoded block, for a
    byte-identical republish. `exchange` and `routing_key` are those of the delivery from the DLQ.
    """

    record_id: str
    source: str
    broker: str
    broker_kind: str
    dead_letter_queue: str
    broker_version: str | None = None
    broker_node: str | None = None
    queue_id: int | None = None
    offset: int | None = None
    message_id: str | None = None
    physical_id: str | None = None
    correlation_id: str | None = None
    keys: Sequence[str] = ()
    key: str | None = None
    origin_kind: str | None = None
    origin: str | None = None
    origin_exchange: str | None = None
    origin_routing_key: str | None = None
    origin_group: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    captured_at: int | None = None
    published_at: int | None = None
    first_dead_at: int | None = None
    dead_at: int | None = None
    expires_at: int | None = None
    failure_text: str | None = None
    deaths: Sequence[Death] = ()
    attempts: int | None = None
    redelivered: bool | None = None
    headers: Mapping[str, str] = NOTHING
    raw_properties: bytes | None = None
    properties: Mapping[str, str] = NOTHING
    body: bytes = b""
    body_size: int = 0
    body_sha256: str = ""
    content_type: str | None = None
    content_encoding: str | None = None
    persistent: bool | None = None
    priority: int | None = None
    flags: int | None = None
    pull_id: str | None = None
    mode: str | None = None


COLUMNS = Record._fields
