"""Markers: proof of which transactions of a replay were committed.

Each transaction carries, beside its letters, one marker into a queue of the plan's own, whose body lists the
replay ids. A transaction is committed whole or not at all, also when the broker is killed between COMMIT
and RECEIPT, so the marker decides. The queue is read by taking everything and giving it back: a selector
or a browser would see only its first pages.

A missing marker lets letters be sent again, so the end is never taken from silence: a message of our own
goes to the end of the queue, and what comes before it is everything. On Classic the scan is the queue's
only consumer meanwhile: another one would be given markers that this one then misses.
"""

import time
from collections.abc import Iterator, Sequence

from dlq.connectors.activemq.republishing import destination
from dlq.connectors.activemq.stomp import Frame, encode, headers_of
from dlq.connectors.activemq.stomp_connection import Link
from dlq.connectors.activemq.stomp_consumer import nudge
from dlq.connectors.base import Target
from dlq.core.errors import AccessDenied, ConnectionLost

_POLL = 0.1
_END = "dlq-end"
"""The header of the message that ends a scan. One that a killed scan left behind names no replay id."""
_CLASSIC = {"activemq.prefetchSize": str(2**31 - 1), "activemq.exclusive": "true"}
_ARTEMIS = {"consumer-window-size": "-1", "subscription-type": "ANYCAST"}

_RIGHTS_ON_CLASSIC = '<authorizationEntry queue="dlq.replay.>" read="GROUP" write="GROUP" admin="GROUP"/>'
_RIGHTS_ON_ARTEMIS = (
    '<security-setting match="dlq.replay.#"> with send, consume, createAddress, createDurableQueue'
)


def marker_queue(plan: str) -> str:
    """The name of a plan's marker queue."""
    return f"dlq.replay.{plan}"


def marker_body(replay_ids: Sequence[str]) -> bytes:
    """What a marker says; `committed` reads it."""
    return "\n".join(replay_ids).encode()


def marker(plan: str, replay_ids: Sequence[str], transaction: str, receipt: str, artemis: bool) -> bytes:
    """The marker's SEND frame, the last before COMMIT."""
    headers = {
        **destination(Target("queue", marker_queue(plan)), artemis),
        "persistent": "true",
        "transaction": transaction,
        "receipt": receipt,
    }
    return encode("SEND", headers, marker_body(replay_ids))


def check_rights(link: Link, plan: str) -> None:
    """Write a marker and take it back. Raises AccessDenied, which names the right that is missing."""
    transaction = {"transaction": "rights"}
    place = destination(Target("queue", marker_queue(plan)), link.artemis)
    link.request("BEGIN", transaction)
    try:
        link.request("SEND", {**place, **transaction}, b"")
    except AccessDenied as error:
        raise without_right(error, link.artemis) from error
    link.request("ABORT", transaction)


def without_right(error: AccessDenied, artemis: bool) -> AccessDenied:
    """Markers may not be written, and what the broker's configuration lacks."""
    entry = _RIGHTS_ON_ARTEMIS if artemis else _RIGHTS_ON_CLASSIC
    proof = "a replay leaves proof of what it sent in queues named dlq.replay.PLAN"
    return AccessDenied(f"{error}; {proof}, so the broker's configuration needs {entry}")


def committed(link: Link, plan: str) -> set[str]:
    """The replay ids of all committed transactions of a plan; changes nothing. Raises BrokerError."""
    found: set[str] = set()
    for frame in _scan(link, plan):
        found.update(frame.body.decode("utf-8", "replace").split("\n"))
    link.request("UNSUBSCRIBE", {"id": link.token})
    return found


def remove(link: Link, plan: str) -> None:
    """Take the markers away. Raises BrokerError."""
    for frame in _scan(link, plan):
        _acknowledge(link, frame)
    link.request("UNSUBSCRIBE", {"id": link.token})


def _scan(link: Link, plan: str) -> Iterator[Frame]:
    """Every marker. Raises ConnectionLost when the broker does not show all of them."""
    place = destination(Target("queue", marker_queue(plan)), link.artemis)
    how = _ARTEMIS if link.artemis else _CLASSIC
    subscribe = {"destination": place["destination"], "id": link.token, "ack": "client-individual", **how}
    link.request("SUBSCRIBE", subscribe)
    end = link.new_receipt()
    link.request("SEND", {**place, "persistent": "true", _END: end}, b"")
    wake = b"" if link.artemis else nudge({"destination": place["destination"]}, link.token)
    heard = time.monotonic()
    while time.monotonic() - heard < link.patience:
        frames = link.receive(_POLL)
        if not frames:
            link.send(wake)
            continue
        heard = time.monotonic()
        for frame in frames:
            if headers_of(frame.head).get(_END) == end:
                _acknowledge(link, frame)
                return
            yield frame
    raise ConnectionLost(f"{link.place}: the markers in {marker_queue(plan)} were not shown to their end")


def _acknowledge(link: Link, frame: Frame) -> None:
    ack = next(line for line in frame.head.split(b"\n") if line.startswith(b"ack:"))
    link.send(b"ACK\nid:%b\n\n\0" % ack.removeprefix(b"ack:"))
