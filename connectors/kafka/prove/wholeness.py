"""Whether a log holds all that came to it.

What a leader wrote in one epoch ends earlier in a log that was cut and has grown again. What was compacted,
however it is set now, lacks offsets.
"""

import struct
from contextlib import closing

from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.link.fetch import text
from dlq.connectors.kafka.look.cluster import Cluster, Place
from dlq.core.errors import ConnectionLost

_API, _VERSION = 23, 2
_NO_EPOCH = -1
_SOME = 2**23


def end_of_epoch(cluster: Cluster, place: Place, epoch: int) -> int:
    """Return the offset behind the last record of that epoch, or of the one before it where it has none,
    which lies earlier. Raises BrokerError.

    OffsetForLeaderEpoch, version 2, which brokers take since 2.1; it needs the right to describe the topic.
    """
    wanted = struct.pack(">i", 1) + text(place.topic)
    wanted += struct.pack(">iiii", 1, place.partition, _NO_EPOCH, epoch)
    with closing(Link(*cluster.leader(place), cluster.access)) as link:
        answer = link.ask(_API, _VERSION, wanted)
    try:
        error, _, _, end = struct.unpack_from(">hiiq", answer, 4 + 4 + len(text(place.topic)) + 4)
    except struct.error as cut:
        raise ConnectionLost(f"{place}: an answer that is cut") from cut
    if error:
        raise ConnectionLost(f"{place}: its leader names no end of epoch {epoch}: error {error}")
    return int(end)


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
