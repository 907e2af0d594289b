"""Whether a log holds all that came to it.

What a leader wrote in one epoch ends earlier in a log that was cut and has grown again. What was compacted,
however it is set now, lacks offsets. What other replicas in sync lack yet a leader shows to no client.
"""

import struct
from contextlib import closing
from typing import Any

from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.link.fetch import text
from dlq.connectors.kafka.look.cluster import Cluster, Place
from dlq.core.errors import ConnectionLost

_OF_EPOCH, _OFFSETS = (23, 2), (2, 5)
"""Number and version of a question."""
_NO_EPOCH = -1
_REPLICA, _UNCOMMITTED, _LATEST = 0, 0, -1
_SOME = 2**23


def end_of_epoch(cluster: Cluster, place: Place, epoch: int) -> int:
    """Return the offset behind the last record of that epoch, or of the one before it where it has none,
    which lies earlier. Raises BrokerError.

    OffsetForLeaderEpoch, version 2, which brokers take since 2.1; it needs the right to describe the topic.
    """
    wanted = struct.pack(">ii", _NO_EPOCH, epoch)
    error, _, _, end = _ask(cluster, place, _OF_EPOCH, b"", wanted, ">hiiq")
    if error:
        raise ConnectionLost(f"{place}: its leader names no end of epoch {epoch}: error {error}")
    return int(end)


def stored_end(cluster: Cluster, place: Place) -> int:
    """Return the offset behind the last record that the leader holds, shown or not. Raises BrokerError.

    ListOffsets, version 5, which brokers take since 2.2, as a replica would ask, be it which; it needs the
    right to describe the topic.
    """
    head, wanted = struct.pack(">ib", _REPLICA, _UNCOMMITTED), struct.pack(">iq", _NO_EPOCH, _LATEST)
    _, error, _, end = _ask(cluster, place, _OFFSETS, head, wanted, ">ihqq")
    if error:
        raise ConnectionLost(f"{place}: its leader does not tell what it holds: error {error}")
    return int(end)


def _ask(
    cluster: Cluster, place: Place, api: tuple[int, int], head: bytes, wanted: bytes, layout: str
) -> tuple[Any, ...]:
    """Return what the leader of a partition says of it alone. Raises BrokerError."""
    topic = text(place.topic)
    asked = head + struct.pack(">i", 1) + topic + struct.pack(">ii", 1, place.partition) + wanted
    with closing(Link(*cluster.leader(place), cluster.access)) as link:
        answer = link.ask(*api, asked)
    try:
        return struct.unpack_from(layout, answer, 4 + 4 + len(topic) + 4)
    except struct.error as cut:
        raise ConnectionLost(f"{place}: an answer that is cut") from cut


def is_compacted_between(cluster: Cluster, place: Place, first: int, end: int) -> bool:
    """Return whether records are missing between two offsets: control records and those of aborted
    transactions are there. Raises BrokerError, ValueError."""
    at = first
    with closing(Link(*cluster.leader(place), cluster.access)) as link:
        while at < end:
            spans = fetch.spans_in(link.ask(fetch.API, fetch.VERSION, fetch.request(*place, at, _SOME)))
            asked = at
            for base, behind, is_whole in spans:
                if base > at or not is_whole:
                    return True
                at = max(at, behind)
            if at == asked:
                raise ValueError(f"nothing came from offset {at}")
    return False
