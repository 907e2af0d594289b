"""Bursts of suppressed duplicates: what one failover of one client connection left in the DLQs.

After a reconnect the broker sends again what was not acknowledged; the client's connection audit takes
it for duplicates and poison-acks it. The text is the same for a message that was processed and for one
that never reached the listener, so that no letter proves either: each is told what it shows, and sent
to be looked at. Seen on 5.17, 5.18, 5.19 and 6.3.

The audit's arithmetic (ActiveMQMessageAuditNoSync, BitArrayBin; 2048 ids rounded up to 33 arrays of 64
bits, 64 producers): setting the newest id of a producer forgets all below the arrays that remain. A
letter so far behind cannot have been recognised, so something else is wrong with it.
"""

from hashlib import sha256
from typing import NamedTuple

from dlq.analyzers.groups.values import known, millisecond

AUDIT_ARRAYS = 33
AUDIT_BITS = 64
AUDIT_PRODUCERS = 64
DEFAULT_PREFETCH = 1000
"""ActiveMQPrefetchPolicy, queues: no more can be on their way to one consumer at a cut."""

CUT_SECONDS = 300
"""Suppressions of a connection that lie further apart, by the client's log, are of different reconnects: a
failover connection keeps its id over all of them."""

_FIRST = (
    "the first of its consumer's range, which the listener had in hand at the cut: such letters were often "
    "processed"
)
_BEHIND = (
    "behind the first of its range: such letters were often never processed, but unsent acknowledgements "
    "(optimizeAcknowledge, INDIVIDUAL_ACK) leave processed ones here too"
)
_IMPOSSIBLE = (
    "no audit could have known it: it is further behind its producer's newest id than an audit remembers; "
    "look for another fault"
)
_IF_ONE = "if all of its burst died at one reconnect, "
"""Without the client's log nothing tells the reconnects of a connection apart."""
_CROWDED = "its burst has more producers than an audit remembers (64): some of them it cannot have known"
_LARGE = ", more than the default prefetch, so of several reconnects or a larger prefetch"
_LOOK = "The text proves neither: look its business data up before it is sent"


class Standing(NamedTuple):
    """Where a suppressed letter stands in its burst."""

    connection_id: str
    burst_size: int
    consumers: int
    producers: int
    """Of the letters of its queue in the burst."""
    producer_seq: int | None
    newest: int | None
    """Of its producer and queue in the burst; `oldest`: and of its consumer."""
    oldest: int | None
    first_seq: int | None
    """The range of its producer's letters without a gap that it is of."""
    last_seq: int | None
    log_time: int | None = None
    """By the client's log, if that has a line of it."""
    burst_from: int | None = None
    """The first of those times in the burst."""
    failed: str | None = None
    reconnected: str | None = None


def burst_id(broker: str | None, connection_id: str, cut: int | None) -> str:
    """`cut`: which reconnect of its connection, from 1; None for the first, and where no log tells."""
    text = known((broker, connection_id, None if cut is None else str(cut)), "|")
    return f"amq-{sha256(text.encode()).hexdigest()[:12]}"


def oldest_known(newest: int) -> int:
    """The lowest sequence id of a producer that an audit can still know after it has seen `newest`."""
    return max(0, (newest // AUDIT_BITS - (AUDIT_ARRAYS - 1)) * AUDIT_BITS)


def is_beyond_prefetch(letters: int, consumers: int) -> bool:
    """More letters than so many consumers can have held by default."""
    return letters > consumers * DEFAULT_PREFETCH


def reason(of: Standing) -> str:
    """What a letter of a burst shows, and that it proves nothing."""
    return f"{_burst(of)}{_by_log(of)}{_range(of)}; {_shows(of)}. {_LOOK}"


def _burst(of: Standing) -> str:
    consumers = f" ({of.consumers} consumers)" if of.consumers > 1 else ""
    large = _LARGE if is_beyond_prefetch(of.burst_size, of.consumers) else ""
    return f"one of {of.burst_size} letters suppressed on connection {of.connection_id}{consumers}{large}"


def _by_log(of: Standing) -> str:
    if of.burst_from is None:
        return ""
    failed = "" if of.failed is None else f", after {of.failed} had failed"
    reconnected = "" if of.reconnected is None else f" and it had reconnected to {of.reconnected}"
    return f"; by the client's log from {millisecond(of.burst_from)}{failed}{reconnected}"


def _range(of: Standing) -> str:
    if of.first_seq is None or of.last_seq is None or of.last_seq <= of.first_seq:
        return ""
    return f"; its producer's {of.first_seq} to {of.last_seq} came without a gap"


def _shows(of: Standing) -> str:
    if of.producer_seq is not None and of.newest is not None and of.producer_seq < oldest_known(of.newest):
        return _IMPOSSIBLE if of.log_time is not None else f"{_IF_ONE}{_IMPOSSIBLE}"
    if of.producers > AUDIT_PRODUCERS:
        return _CROWDED
    return _FIRST if of.producer_seq is not None and of.producer_seq == of.oldest else _BEHIND
