"""What a topic takes, as its cluster announces it: how large a record, and of which times."""

from collections.abc import Mapping
from typing import NamedTuple

from dlq.connectors.kafka.cluster import Cluster, number_in
from dlq.connectors.kafka.republishing import Message
from dlq.core.errors import NotFound

_FOREVER = -1
_DIFFERENCE = "message.timestamp.difference.max.ms"
"""Of brokers before 4.0, for both directions."""
_AROUND = 61
"""Bytes of a batch beside its records (DefaultRecordBatch.RECORD_BATCH_OVERHEAD)."""


class Taken(NamedTuple):
    """What is known of a topic that is sent to."""

    partitions: int
    keeps: float = 0
    """Milliseconds that it keeps what is old by its time; 0: that is not known."""
    ahead: float = 0
    """Milliseconds by which a record's time may be ahead of the broker's."""
    size: int | None = None
    """Bytes of the largest batch; None: that is not known."""
    request: int | None = None
    """Bytes of the largest request; one above it ends the connection. None: that is not known."""
    closed: str | None = None
    """Why nothing can be sent there."""


def taken_by(cluster: Cluster, name: str) -> Taken:
    """Raises BrokerError. Neither the producer nor this question makes a topic."""
    try:
        topic = cluster.topic(name)
    except NotFound:
        return Taken(0, closed=f"there is no topic {name}")
    settings = cluster.configuration(name) or {}
    return Taken(
        topic.partitions,
        keeps_for(settings),
        _least(settings, "message.timestamp.after.max.ms", _DIFFERENCE),
        number_in(settings, "max.message.bytes"),
        cluster.longest_request,
    )


def keeps_for(settings: Mapping[str, str]) -> float:
    """Milliseconds for which a topic surely keeps, and takes, records by their own time; 0: not known."""
    retention = number_in(settings, "retention.ms")
    if retention is None:
        return 0
    oldest = _least(settings, "message.timestamp.before.max.ms", _DIFFERENCE)
    return min(float("inf") if retention == _FOREVER else retention / 2, oldest)


def _least(settings: Mapping[str, str], *names: str) -> int:
    told = [number_in(settings, name) for name in names]
    return min((number for number in told if number is not None), default=0)


def why_too_large(message: Message, taken: Taken) -> str | None:
    """Why the topic surely takes no record of that size; None where it may."""
    size = _AROUND + sum(
        len(part) for pair in [(message.key, message.value), *message.headers] for part in pair if part
    )
    if taken.size is not None and size > taken.size:
        return (
            f"a record of {size} bytes, and {message.topic} takes none above {taken.size} "
            "(max.message.bytes); raise it there"
        )
    if taken.request is not None and size > taken.request:
        return (
            f"a record of {size} bytes, and a broker takes no request above {taken.request} "
            "(socket.request.max.bytes); raise it there"
        )
    return None


def time_of(message: Message, taken: Taken, now: float) -> int:
    """The letter's own time where the topic takes it, and keeps what is so old for as long again; else 0,
    which is now. `now` is in milliseconds of our clock, from which the broker's may differ."""
    if message.timestamp is None or not -taken.ahead / 2 <= now - message.timestamp < taken.keeps:
        return 0
    return message.timestamp
