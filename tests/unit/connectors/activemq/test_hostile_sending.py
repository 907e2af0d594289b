"""A broker that floods who sends: nothing was subscribed to, so hardly anything is kept."""

import struct

import pytest
from support.brokers.hostile import flood, openwire, stomp
from support.servers.hostile import Server

from dlq.connectors.activemq.description import ActiveMQBroker
from dlq.connectors.activemq.openwire import Letter, Writer, destination, properties
from dlq.connectors.activemq.openwire_messages import TEXT
from dlq.connectors.activemq.openwire_publisher import OpenWireSender
from dlq.connectors.activemq.senders import StompSender
from dlq.core.errors import ConnectionLost, DlqError

HEAD = b"MESSAGE\nsubscription:TOKEN\nmessage-id:1\ndestination:/queue/q\n"


def send_for_ever(sender: StompSender) -> None:
    while True:
        sender.request("SEND", {"destination": "/queue/q"}, b"x")


@pytest.mark.parametrize(
    "piece",
    [HEAD + b"content-length:65536\n\n" + b"x" * 2**16 + b"\0\n", HEAD + b"\n\0\n"],
    ids=["large letters", "letters of nothing"],
)
@pytest.mark.parametrize("beginning", [b"", HEAD + b"\n" + b"x" * 2**16], ids=["whole", "one without end"])
def test_letters_that_nobody_asked_for_end_a_sending_soon(piece: bytes, beginning: bytes) -> None:
    with Server(stomp(flood(beginning, piece), "SEND")) as server:
        sender = StompSender(ActiveMQBroker("b", "activemq", f"stomp://{server.address}", timeout="20s"))
        with pytest.raises(ConnectionLost, match="more than it was asked for"):
            send_for_ever(sender)
        assert sender._kept + sender.unfinished_bytes < 2**25
        sender.close()


PLACE, HEADER = destination("queue", "q"), struct.calcsize(">iB")
SENDS = 3
"""ConnectionInfo: from then on nothing else is heard."""


def dispatched(body: bytes) -> bytes:
    """A message as a broker gives it to a consumer."""
    sent = Writer("ID:a-1-2-3:1").message(Letter(PLACE, TEXT, body, properties({}, {}), 0), None)
    who = struct.pack(">BBBH12sqq", 1, 122, 1, 12, b"ID:a-1-2-3:1", 1, 1)
    command = b"\x15\0\0\0\0\0" + who + PLACE + b"\1" + sent[HEADER - 1 : HEADER] + sent[HEADER:] + bytes(4)
    return struct.pack(">i", len(command)) + command


ENDLESS = struct.pack(">i", 2**29) + dispatched(b"x")[4:]


@pytest.mark.parametrize("piece", [dispatched(b"x" * 2**16), dispatched(b"")], ids=["large", "of nothing"])
@pytest.mark.parametrize("beginning", [b"", ENDLESS], ids=["whole", "one without end"])
def test_letters_by_openwire_that_nobody_asked_for_end_it_too(piece: bytes, beginning: bytes) -> None:
    with Server(openwire(flood(beginning, piece), SENDS)) as server:
        broker = ActiveMQBroker("b", "activemq", f"tcp://{server.address}", timeout="20s")
        with pytest.raises(DlqError, match="more than it was asked for"):
            OpenWireSender(broker)
