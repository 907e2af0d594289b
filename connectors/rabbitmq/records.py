"""One RabbitMQ delivery as a record. This runs for every letter, so what repeats is remembered."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.amqp import table
from dlq.connectors.rabbitmq.amqp.fields import instant
from dlq.connectors.rabbitmq.amqp.frames import Delivery
from dlq.connectors.rabbitmq.x_death import deaths, rejections
from dlq.core.clock import now
from dlq.core.identity import content_id, framed
from dlq.core.record import FLAG_AMQP10_BODY, Death, Record

_AMQP10 = "amqp-1.0"
_unreadable = table.Properties({}, {})
# A named tuple's own constructor costs three times as much.
_record = Record._make
_PERSISTENT = {"1": False, "2": True}
_NUMBERS = {str(number): number for number in range(256)}
_after_tag = Struct(">Q?").size


class _History(NamedTuple):
    """What the x-death header says of where a letter was before."""

    deaths: tuple[Death, ...]
    queue: str | None
    exchange: str | None
    routing_key: str | None
    first: int | None
    last: int | None
    rejections: int | None


@lru_cache(maxsize=2048)
def history(x_death: str | None) -> _History:
    """The death history in an x-death header's text; of times the header knows only each pair's first."""
    entries = deaths(x_death) if x_death else ()
    oldest = entries[-1] if entries else Death()
    times = [entry.time for entry in entries if entry.time is not None]
    return _History(
        entries,
        oldest.queue,
        oldest.exchange,
        next(iter(oldest.routing_keys), None),
        min(times, default=None),
        max(times, default=None),
        rejections(entries),
    )


def record_maker(request: ReadRequest, broker_version: str) -> Callable[[Delivery], Record]:
    """A function that turns deliveries of one reading into records.

    A block that cannot be decoded (no broker lets one through) is kept as raw bytes without a view.
    """
    source = request.source
    queue = source.queue or ""
    key_of = request.key_reader()
    place = framed(source.name.encode(), queue.encode())

    def make(delivery: Delivery) -> Record:
        redelivered, exchange, routing_key, framed_names = _envelope(delivery.method)
        block, body = delivery.block, delivery.body
        digest = sha256(body).hexdigest()
        try:
            properties, headers = table.decode(block)
            stable = table.stable(block, headers)
        except ValueError:
            (properties, headers), stable = _unreadable, block
        past = history(headers.get("x-death"))
        origin = headers.get("x-first-death-queue") or past.queue
        message_id = properties.get("message_id")
        published = properties.get("timestamp")
        return _record((
            content_id(stable, digest.encode(), after=place + framed_names),
            source.name,
            source.broker,
            "rabbitmq",
            queue,
            broker_version,
            None,  # broker_node
            None,  # queue_id
            None,  # offset
            message_id,
            None,  # physical_id
            properties.get("correlation_id"),
            (),  # keys
            key_of(message_id, headers, properties, body),
            "queue" if origin else None,
            origin,
            past.exchange,
            past.routing_key,
            None,  # origin_group
            exchange,
            routing_key,
            now(),
            None if published is None else instant(int(published)),
            past.first,
            past.last,
            None,  # expires_at
            None,  # failure_text
            past.deaths,
            past.rejections,
            redelivered,
            headers,
            block,
            properties,
            body,
            len(body),
            digest,
            properties.get("content_type"),
            properties.get("content_encoding"),
            _PERSISTENT.get(properties.get("delivery_mode", "")),
            _NUMBERS.get(properties.get("priority", "")),
            FLAG_AMQP10_BODY if properties.get("type") == _AMQP10 else None,
            request.pull_id,
            request.mode,
        ))  # fmt: skip

    return make


def _envelope(method: bytes) -> tuple[bool, str, str, bytes]:
    """(redelivered, exchange, routing key, both framed) of a basic.deliver payload."""
    flag = 5 + method[4] + _after_tag - 1
    return method[flag] != 0, *_names(method[flag + 1 :])


@lru_cache(maxsize=2048)
def _names(encoded: bytes) -> tuple[str, str, bytes]:
    middle = 1 + encoded[0]
    texts = encoded[1:middle], encoded[middle + 1 : middle + 1 + encoded[middle]]
    exchange, routing_key = (text.decode("utf-8", "backslashreplace") for text in texts)
    return exchange, routing_key, framed(*texts)
