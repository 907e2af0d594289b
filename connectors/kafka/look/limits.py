"""What a topic takes, as its cluster announces it: how large a record, and of which times."""

from typing import NamedTuple

from dlq.connectors.kafka.look.cluster import Cluster, number_in
from dlq.connectors.kafka.look.times import Times, times_of, why_not_kept
from dlq.connectors.kafka.republish import Message
from dlq.core.errors import NotFound

_AROUND = 61
"""Bytes of a batch beside its records (DefaultRecordBatch.RECORD_BATCH_OVERHEAD)."""


class Taken(NamedTuple):
    """What is known of a topic that is sent to."""

    partitions: int
    times: Times = Times()
    size: int | None = None
    """Bytes of the largest batch; None: that is not known."""
    request: int | None = None
    """Bytes of the largest request; one above it ends the connection. None: that is not known."""
    closed: str | None = None
    """Why nothing can be sent there."""


def taken_by(cluster: Cluster, name: str) -> Taken:
    """Ask what a topic takes. Raises BrokerError. Neither the producer nor this question makes a topic."""
    try:
        topic = cluster.topic(name)
    except NotFound:
        return Taken(0, closed=f"there is no topic {name}")
    settings = cluster.configuration(name) or {}
    return Taken(
        topic.partitions,
        times_of(settings),
        number_in(settings, "max.message.bytes"),
        cluster.longest_request,
    )


def why_too_large(message: Message, taken: Taken) -> str | None:
    """Return why the topic surely takes no record of that size; None where it may."""
    beside = sum([len(name) + len(value or b"") for name, value in message.headers])
    size = _AROUND + len(message.key or b"") + len(message.value or b"") + beside
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
    """Return the letter's own time where the topic keeps it; else 0, which is now."""
    is_kept = why_not_kept(message.topic, taken.times, message.timestamp, now) is None
    return message.timestamp or 0 if is_kept else 0
