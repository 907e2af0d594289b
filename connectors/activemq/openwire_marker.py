"""Markers over OpenWire; `marker` says what they prove, and why their queue is read to its end."""

import secrets
import time
from collections.abc import Iterator

from dlq.connectors.activemq import openwire
from dlq.connectors.activemq.marker import marker_queue, without_right
from dlq.connectors.activemq.openwire_connection import OpenWireConnection
from dlq.connectors.activemq.openwire_messages import BYTES, Dispatch
from dlq.core.errors import AccessDenied, ConnectionLost

_CONSUMER, _NUDGE = 11, 12
_ALL = 2**31 - 1
_POLL, _PATIENCE = 0.1, 30.0
_TRANSACTION = 1
"""Those of a replay are numbered from there on, which the broker allows."""


def marker_of(plan: str, body: bytes) -> openwire.Letter:
    """A persistent message into the plan's queue."""
    place = openwire.destination("queue", marker_queue(plan))
    return openwire.Letter(place, BYTES, body, openwire.properties({}, {}), time.time_ns() // 1_000_000)


def check_rights(connection: OpenWireConnection, plan: str) -> None:
    """Write a marker and take it back. Raises AccessDenied, which names the right that is missing."""
    writer, written, done = connection.writer, connection.new_receipt(), connection.new_receipt()
    begin = writer.transaction("begin", _TRANSACTION)
    connection.send(begin + writer.message(marker_of(plan, b""), _TRANSACTION, int(written)))
    try:
        connection.wait_for(written)
    except AccessDenied as error:
        raise without_right(error, connection.artemis) from error
    connection.send(writer.transaction("rollback", _TRANSACTION, int(done)))
    connection.wait_for(done)


def committed(connection: OpenWireConnection, plan: str) -> set[str]:
    """The replay ids of all committed transactions of a plan; changes nothing. Raises BrokerError."""
    found: set[str] = set()
    for marker in _scan(connection, plan):
        content = (marker.message and marker.message.content) or b""
        found.update(content.decode("utf-8", "replace").split("\n"))
    return found


def remove(connection: OpenWireConnection, plan: str) -> None:
    """Take the markers away. Raises BrokerError."""
    for marker in _scan(connection, plan):
        _acknowledge(connection, plan, marker)


def _scan(connection: OpenWireConnection, plan: str) -> Iterator[Dispatch]:
    """Every marker. Raises ConnectionLost when the broker does not show all of them."""
    writer, queue, end = connection.writer, marker_queue(plan), f"end-{secrets.token_hex(8)}".encode()
    started, sent = connection.new_receipt(), connection.new_receipt()
    connection.send(writer.consume(_CONSUMER, queue, _ALL, False, None, int(started), exclusive=True))
    connection.wait_for(started)
    connection.send(writer.message(marker_of(plan, end), None, int(sent)))
    connection.wait_for(sent)
    heard = time.monotonic()
    while time.monotonic() - heard < _PATIENCE:
        arrived = connection.receive(_POLL)
        if not arrived:
            nudge = writer.consume(_NUDGE, queue, 1, False, "1=0", 0)
            connection.send(nudge + writer.stop(_NUDGE))
            continue
        heard = time.monotonic()
        for marker in arrived:
            if marker.message is not None and marker.message.content == end:
                _acknowledge(connection, plan, marker)
                _stop(connection)
                return
            yield marker
    raise ConnectionLost(f"{connection.place}: the markers in {queue} were not shown to their end")


def _stop(connection: OpenWireConnection) -> None:
    receipt = connection.new_receipt()
    connection.send(connection.writer.stop(_CONSUMER, int(receipt)))
    connection.wait_for(receipt)
    connection.receive(0)  # what came beyond the end


def _acknowledge(connection: OpenWireConnection, plan: str, marker: Dispatch) -> None:
    connection.send(connection.writer.acknowledge(_CONSUMER, marker_queue(plan), [marker.name]))
