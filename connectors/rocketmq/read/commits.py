"""Which of the transactions that have ended were committed, by the queues of their topics.

An index that lacks a real message proves nothing: a broker may stop building it, on a full disk for one, and
go on. A commit writes the real message behind the half message and before the op record, into one log, so
it lies between these two by its position there; no clock is asked. And while the half message is there, so
is what lies behind it: retention takes a log from its start.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import NotWhole, QueueOffsets, all_messages, message_at, offsets_of
from dlq.core.errors import AccessDenied, NotFound

MOST_COMMITS = 500_000
"""Messages of a queue that are looked through for one batch of op records: some seconds."""


class Ended(NamedTuple):
    """A half message, and where in the broker's log the op record lies that ended it."""

    half: StoredMessage
    position: int


def committed_among(cluster: Cluster, node: str, ended: Sequence[Ended]) -> tuple[list[StoredMessage], bool]:
    """Return the real messages of those that were committed, and whether the others surely were not. Raises
    BrokerError."""
    by_queue: dict[MessageQueue, list[Ended]] = defaultdict(list)
    for one in ended:
        has = parse_properties(one.half.properties)
        queue = has.get("REAL_QID", "")
        place = MessageQueue(has.get("REAL_TOPIC", ""), node, int(queue) if queue.isdecimal() else -1)
        by_queue[place].append(one)
    found, is_all = list[StoredMessage](), True
    for place, some in by_queue.items():
        try:
            found += _in_queue(cluster, place, some)
        except (NotWhole, AccessDenied, NotFound):
            is_all = False
    return found, is_all


def _in_queue(cluster: Cluster, place: MessageQueue, ended: Sequence[Ended]) -> list[StoredMessage]:
    offsets = offsets_of(cluster, place) if place.queue >= 0 else None
    if offsets is None:
        raise NotWhole
    first = _first_behind(cluster, offsets, min(one.half.commit_log_offset for one in ended))
    end = _first_behind(cluster, offsets, max(one.position for one in ended))
    if end - first > MOST_COMMITS:
        raise NotWhole
    keys = {_key_of(one.half) for one in ended}
    return [m for m in all_messages(cluster, offsets, first, end) if _key_of(m) in keys]


def _key_of(message: StoredMessage) -> str | None:
    return parse_properties(message.properties).get("UNIQ_KEY")


def _first_behind(cluster: Cluster, offsets: QueueOffsets, position: int) -> int:
    """Return the offset of the first message that lies behind a position of the log."""
    low, high = offsets.lowest, offsets.highest
    while low < high:
        middle = (low + high) // 2
        there = message_at(cluster, offsets, middle)
        if there is None:
            raise NotWhole
        if there.commit_log_offset > position:
            high = middle
        else:
            low = middle + 1
    return low
