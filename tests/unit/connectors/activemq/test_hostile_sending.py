"""A broker that floods who sends: nothing was subscribed to, so hardly anything is kept."""

import pytest
from support.brokers.hostile import flood, stomp
from support.servers.hostile import Server

from dlq.connectors.activemq.description import ActiveMQBroker
from dlq.connectors.activemq.senders import StompSender
from dlq.core.errors import ConnectionLost

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
        sender = StompSender(ActiveMQBroker("b", "activemq", f"stomp://{server.address}", timeout="2s"))
        with pytest.raises(ConnectionLost, match="more than it was asked for"):
            send_for_ever(sender)
        assert sender._kept + sender.unfinished_bytes < 2**25
        sender.close()
