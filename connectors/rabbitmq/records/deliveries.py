"""RabbitMQ deliveries as records, a batch at a time; what repeats between letters is remembered."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.amqp091.codec import alike, table
from dlq.connectors.rabbitmq.amqp091.codec.fields import instant
from dlq.connectors.rabbitmq.amqp091.codec.frames import Delivery
from dlq.connectors.rabbitmq.records.x_death import deaths, first_death, rejections
from dlq.connectors.records import common_columns, content_columns, key_column
from dlq.core.columns import (
    Column,
    Columns,
    Constant,
    map_column,
    map_columns,
    values_of,
)
from dlq.core.headers.message_ids import logged_id
from dlq.core.identity import content_ids, frame
from dlq.core.record import FLAG_AMQP10_BODY, Death

_FLAGS = {"amqp-1.0": FLAG_AMQP10_BODY}
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
def history(x_death: str | None, queue: str | None = None, reason: str | None = None) -> _History:
    """Return the death history in an x-death header's text, which knows only the first time of each pair.
    `queue`, `reason`: what x-first-death-* say."""
    entries = deaths(x_death) if x_death else ()
    oldest = first_death(entries, queue, reason)
    times = [entry.time for entry in entries if entry.time is not None]
    return _History(
        entries,
        queue or oldest.queue,
        oldest.exchange,
        next(iter(oldest.routing_keys), None),
        min(times, default=None),
        max(times, default=None),
        rejections(entries),
    )


def record_maker(request: ReadRequest, broker_version: str) -> Callable[[Sequence[Delivery]], Columns]:
    """Return a function that turns deliveries of one reading into records, a batch at a time.

    A block that cannot be decoded (no broker lets one through) is kept as raw bytes without a view.
    """
    queue = request.source.queue or ""
    place = frame(request.source.name.encode(), queue.encode())

    def make(deliveries: Sequence[Delivery]) -> Columns:
        rows = len(deliveries)
        redelivered, exchanges, routing_keys, envelopes = zip(
            *[_envelope(delivery.method) for delivery in deliveries], strict=True
        )
        blocks, bodies = zip(*[(delivery.block, delivery.body) for delivery in deliveries], strict=True)
        properties, headers, stable = _decode(blocks)
        digests = [sha256(body).digest() for body in bodies]
        told = values_of(properties, "message_id")
        ids = told if all(told) else [*map(logged_id, told, headers, bodies)]
        return Columns.build(
            rows,
            record_id=content_ids(
                [place + envelope for envelope in envelopes], stable, [one.hex().encode() for one in digests]
            ),
            dead_letter_queue=Constant(queue, rows),
            message_id=ids,
            key=key_column(request, ids, headers, properties, bodies),
            exchange=exchanges,
            routing_key=routing_keys,
            redelivered=redelivered,
            headers=headers,
            raw_properties=blocks,
            properties=properties,
            **_of_properties(properties),
            **_of_history(headers),
            **content_columns(bodies, digests),
            **common_columns(rows, request, "rabbitmq", broker_version),
        )

    return make


def _of_properties(properties: Column) -> dict[str, Column]:
    """Return what the basic properties tell by themselves."""

    def of(name: str) -> Column:
        return values_of(properties, name)

    return {
        "correlation_id": of("correlation_id"),
        "published_at": map_column(lambda time: time and instant(int(time)), of("timestamp")),
        "content_type": of("content_type"),
        "content_encoding": of("content_encoding"),
        "persistent": map_column(_PERSISTENT.get, of("delivery_mode")),
        "priority": map_column(_NUMBERS.get, of("priority")),
        "flags": map_column(_FLAGS.get, of("type")),
    }


def _of_history(headers: Column) -> dict[str, Column]:
    """Return where and how often each died before."""
    told = ("x-death", "x-first-death-queue", "x-first-death-reason")
    before = map_columns(history, *(values_of(headers, name) for name in told))

    def of(name: str) -> Column:
        return map_column(attrgetter(name), before)

    return {
        "origin_kind": map_column(lambda known: "queue" if known.queue else None, before),
        "origin": of("queue"),
        "origin_exchange": of("exchange"),
        "origin_routing_key": of("routing_key"),
        "first_dead_at": of("first"),
        "dead_at": of("last"),
        "deaths": of("deaths"),
        "attempts": of("rejections"),
    }


def _decode(blocks: Sequence[bytes]) -> tuple[Column, Column, Sequence[bytes]]:
    """Return properties, headers, and what of each block stays the same at each delivery."""
    found = alike.decode(blocks)
    if found is None:
        properties, headers, stable = zip(*map(_decode_one, blocks), strict=True)
        return properties, headers, stable
    names = found[1].columns
    return *found, [table.stable(block, names) for block in blocks]


def _decode_one(block: bytes) -> tuple[Mapping[str, str], Mapping[str, str], bytes]:
    """Return the same of one block; where it cannot be read it shows nothing."""
    try:
        properties, headers = table.decode(block)
        return properties, headers, table.stable(block, headers)
    except ValueError:
        return {}, {}, block


def _envelope(method: bytes) -> tuple[bool, str, str, bytes]:
    """Return (redelivered, exchange, routing key, both framed) of a basic.deliver payload."""
    flag = 5 + method[4] + _after_tag - 1
    return method[flag] != 0, *_names(method[flag + 1 :])


@lru_cache(maxsize=2048)
def _names(encoded: bytes) -> tuple[str, str, bytes]:
    middle = 1 + encoded[0]
    texts = encoded[1:middle], encoded[middle + 1 : middle + 1 + encoded[middle]]
    exchange, routing_key = (text.decode("utf-8", "backslashreplace") for text in texts)
    return exchange, routing_key, frame(*texts)
