"""With which exchange and keys a letter was first delivered, as it tells itself. No I/O."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq.connectors.amqp10.codec import message
from dlq.connectors.rabbitmq.amqp091.codec import edits, table
from dlq.connectors.rabbitmq.amqp091.codec.fields import CACHED_BYTES
from dlq.connectors.rabbitmq.records import amqp10, x_death
from dlq.core.headers.failure_headers import first_published, mark_of
from dlq.core.record import Death, Record
from dlq.core.text import for_terminal

_SHORT_STRING = 255
_DEATH = ("x-death", "x-first-death-queue", "x-first-death-reason")
_CELERY = {"task", "id", "root_id"}
"""Headers of its messages (protocol 2)."""
CELERY = "Celery sends a retry to the exchange that its task came from, and the default one is always there"
"""`Task.signature_from_request`."""

decoded = lru_cache(maxsize=2)(table.decode)
"""`table.decode`: the same letter is asked about again and again."""


class Way(NamedTuple):
    """What a letter is published with: `copies` are the further keys of its header CC."""

    exchange: str
    key: str
    copies: tuple[str, ...] = ()


def first_delivered(record: Record, queue: str) -> Way | None:
    """Return what a letter had when it first came to `queue`, or was first published where it died elsewhere;
    None where nothing says that. Raises ValueError for properties that cannot be read."""
    block = record.raw_properties
    if block is not None and message.is_block(block):
        parts = message.parts(block)
        return _first(amqp10.headers_of(parts), amqp10.deaths_of(parts), queue)
    if block is None:
        return _first(record.headers, x_death.deaths(record.headers.get("x-death", "")), queue)
    evidence = edits.some_headers(block, _tells)
    return (_known_first if len(evidence) <= CACHED_BYTES else _first_told)(evidence, queue)


def _first_told(evidence: bytes, queue: str) -> Way | None:
    """Return the way that a block of headers tells, the same for thousands of letters within a second."""
    headers = table.decode(evidence).headers
    return _first(headers, x_death.deaths(headers.get("x-death", "")), queue)


_known_first = lru_cache(maxsize=512)(_first_told)


def _tells(name: str) -> bool:
    mark = mark_of(name)
    return name in _DEATH or (mark is not None and mark.kind == "origin")


def _first(headers: Mapping[str, str], history: Sequence[Death], queue: str) -> Way | None:
    told = [death for death in history if death.routing_keys]
    if here := [death for death in told if death.queue == queue]:
        return _way(min(here, key=lambda death: math.inf if death.time is None else death.time))
    exchange, key = first_published(headers)
    if key is not None:
        return _way(Death(exchange=exchange, routing_keys=(key,)))
    first = headers.get("x-first-death-queue"), headers.get("x-first-death-reason")
    return _way(x_death.first_death(told, *first)) if told else None


def is_of_celery(record: Record) -> bool:
    """Return whether a consumer may publish it again to the exchange that it came from (`CELERY`). Raises
    ValueError."""
    block = record.raw_properties
    if block is None:
        return record.headers.keys() >= _CELERY
    if message.is_block(block):
        return amqp10.headers_of(message.parts(block)).keys() >= _CELERY
    names = edits.header_names(block)
    return "root_id" in names and _CELERY.issubset(names)


def _way(death: Death) -> Way | None:
    """Return the way that a death tells; None for a key that is no UTF-8: it is shown escaped."""
    key, *copies = death.routing_keys
    is_odd = any("\\x" in text or len(text.encode()) > _SHORT_STRING for text in death.routing_keys)
    return None if is_odd else Way(death.exchange or "", key, tuple(copies))


def what_changes(queue: str, came: Way | None, way: Way, why: str) -> str | None:
    """Return what the consumers of a queue see that they did not see the first time; None where that is
    nothing. `why` a letter that came with another key does not keep it."""
    letters, exchange = f"queue {for_terminal(queue)}: letters", for_terminal(came.exchange) if came else ""
    if came is None:
        return f"{letters} get its name as the key: nothing says with which key they first came"
    if came[1:] != way[1:]:
        return f"{letters} get its name as the key, and no CC: {why}"
    if way.exchange:
        return (
            f"{letters} keep key and CC, and come through an exchange of the plan's own, which is "
            f"deleted when all are sent, instead of {exchange or 'the default one'}"
        )
    said = f"{letters} keep their key, and come through the default exchange instead of {exchange}"
    return said if exchange else None
