"""Markers: proof of which transactions of a replay were committed.

Each transaction carries, beside its letters, one marker into a queue of the plan's own, whose body lists the
replay ids. A transaction is committed whole or not at all, also when the broker is killed between COMMIT
and RECEIPT, so the marker decides. The queue is read by taking everything and giving it back: a selector
or a browser would see only its first pages.
"""

import time
from collections.abc import Iterator

from dlq.connectors.activemq_hygiene import destination
from dlq.connectors.activemq_link import Link
from dlq.connectors.base import Target
from dlq.connectors.stomp_frames import Frame, encode

_POLL = 0.1
_QUIET = 2.0


def marker_queue(plan: str) -> str:
    """The name of a plan's marker queue."""
    return f"dlq.replay.{plan}"


def marker(plan: str, replay_ids: list[str], transaction: str, receipt: str, artemis: bool) -> bytes:
    """The marker's SEND frame, the last before COMMIT."""
    headers = {
        **destination(Target("queue", marker_queue(plan)), artemis),
        "persistent": "true",
        "transaction": transaction,
        "receipt": receipt,
    }
    return encode("SEND", headers, "\n".join(replay_ids).encode())


def committed(link: Link, plan: str) -> set[str]:
    """The replay ids of all committed transactions of a plan; changes nothing. Raises BrokerError."""
    found: set[str] = set()
    for frame in _walk(link, plan):
        found.update(frame.body.decode("utf-8", "replace").split("\n"))
    link.request("UNSUBSCRIBE", {"id": link.token})
    return found


def remove(link: Link, plan: str) -> None:
    """Take the markers away. Raises BrokerError."""
    for frame in _walk(link, plan):
        ack = next(line for line in frame.head.split(b"\n") if line.startswith(b"ack:"))
        link.send(b"ACK\nid:%b\n\n\0" % ack.removeprefix(b"ack:"))
    link.request("UNSUBSCRIBE", {"id": link.token})


def _walk(link: Link, plan: str) -> Iterator[Frame]:
    """Every marker, until the broker has been silent for a while."""
    window = {"consumer-window-size": "-1", "subscription-type": "ANYCAST"} if link.artemis else {}
    place = destination(Target("queue", marker_queue(plan)), link.artemis)["destination"]
    headers = {"destination": place, "id": link.token, "ack": "client-individual", **window}
    link.request(
        "SUBSCRIBE", headers if link.artemis else {**headers, "activemq.prefetchSize": str(2**31 - 1)}
    )
    heard = time.monotonic()
    while time.monotonic() - heard < _QUIET:
        for frame in link.receive(_POLL):
            heard = time.monotonic()
            yield frame
