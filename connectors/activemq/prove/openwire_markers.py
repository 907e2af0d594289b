"""Markers over OpenWire; `markers` says what they prove, and why their queue is read to its end."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from dlq.connectors.activemq.openwire.codec import commands
from dlq.connectors.activemq.openwire.codec.messages import BYTES, Dispatch
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.prove import markers
from dlq.core.errors import name_rights
from dlq.core.runtime import patience

_CONSUMER, _NUDGE = 11, 12
_ALL = 2**31 - 1


def marker_of(plan: str, body: bytes) -> commands.Letter:
    """Return a persistent message into the plan's queue."""
    place = commands.destination("queue", markers.marker_queue(plan))
    return commands.Letter(place, BYTES, body, commands.properties({}, {}), time.time_ns() // 1_000_000)


def leave_anchor(connection: OpenWireConnection, plan: str, name: str) -> None:
    """Leave an anchor before the first letter. Raises AccessDenied, which names the right that is missing."""
    receipt = connection.new_receipt()
    anchor = marker_of(plan, markers.marker_body(name))
    connection.send(connection.writer.message(anchor, None, int(receipt)))
    with name_rights(markers.rights_to_mark(connection.artemis)):
        connection.wait_for(receipt)


def trail(connection: OpenWireConnection, plan: str) -> markers.Trail:
    """Return what the markers of a plan say; changes nothing. Raises BrokerError."""
    with _scanning(connection, plan) as scanning:
        return markers.scan_markers(scanning, markers.marker_queue(plan))[0]


def remove(connection: OpenWireConnection, plan: str) -> None:
    """Take the markers away. Raises BrokerError."""
    with _scanning(connection, plan) as scanning:
        markers.remove_all(scanning, plan)


@contextlib.contextmanager
def _scanning(connection: OpenWireConnection, plan: str) -> Iterator[markers.Scanning]:
    writer, queue, started = connection.writer, markers.marker_queue(plan), connection.new_receipt()
    connection.send(
        writer.consume(_CONSUMER, queue, _ALL, False, markers.OF_THIS_STORE, int(started), exclusive=True)
    )
    connection.wait_for(started)
    nudge = writer.consume(_NUDGE, queue, 1, False, "1=0", 0) + writer.stop(_NUDGE)

    def send(bodies: Sequence[bytes]) -> None:
        connection.send(b"".join([writer.message(marker_of(plan, body), None) for body in bodies]))

    yield markers.Scanning(
        send,
        lambda: [_read_marker(letter) for letter in connection.receive(patience.PAUSE)],
        lambda one: connection.send(writer.acknowledge(_CONSUMER, queue, [one.name])),
        lambda: connection.send(nudge),
        patience.RESTART,
        connection.place,
    )
    receipt = connection.new_receipt()
    connection.send(writer.stop(_CONSUMER, int(receipt)))
    connection.wait_for(receipt)
    connection.receive(0)  # what came beyond the end


def _read_marker(letter: Dispatch) -> markers.Marked:
    message = letter.message
    dies = message is not None and message.expiration > 0
    return markers.Marked((message and message.content) or b"", dies, letter.name)
