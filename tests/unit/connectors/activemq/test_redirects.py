"""A broker that names another host for its clients: nothing goes there, least of all a password."""

import socket
import struct
from collections.abc import Callable

import pytest
from support.brokers.hostile import OPENWIRE_CONNECT, Harm, openwire, openwire_command
from support.brokers.hostile_amqp10 import Taking
from support.servers.hostile import Server
from support.waiting import UNHURRIED

from dlq.connectors.activemq.amqp.send import Amqp10Sender
from dlq.connectors.activemq.openwire.link import OpenWireConnection
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import NULL, described_value, mapping, sequence, string, symbol, uint
from dlq.core.errors import BrokerError

_CONNECTION_CONTROL, _ERROR = 18, 0x1D


def then_hang_up(said: bytes) -> Harm:
    def harm(peer: socket.socket) -> None:
        peer.sendall(said)

    return harm


def rebalancing(thief: str) -> bytes:
    """Classic's ConnectionControl with connectedBrokers, reconnectTo and rebalanceConnection."""
    url = f"tcp://{thief}".encode()
    name = b"\1" + struct.pack(">H", len(url)) + url
    return openwire_command(_CONNECTION_CONTROL, bytes(5) + name + name + b"\1")


def redirected(thief: str, code: int, condition: str) -> bytes:
    """How Artemis' connection router says that a client is another broker's."""
    host, _, port = thief.partition(":")
    names = [symbol(name) + string(host) for name in ("hostname", "network-host")]
    told = mapping([*names, symbol("port") + uint(int(port))])
    error = described_value(_ERROR, sequence([symbol(condition), string("elsewhere"), told]))
    return frames.frame(code, [error])


def to_openwire(thief: str) -> None:
    harm = then_hang_up(rebalancing(thief))
    with Server(openwire(harm, OPENWIRE_CONNECT)) as server:
        OpenWireConnection(broker(f"tcp://thomas@{server.address}"))


def to_amqp(thief: str) -> None:
    opened = frames.frame(frames.OPEN, [string("b"), NULL, uint(frames.MAX_FRAME)])
    closed = redirected(thief, frames.CLOSE, "amqp:connection:redirect")
    with Server(Taking({frames.OPEN: lambda _peer, _frame: opened + closed})) as server:
        Amqp10Sender(broker("stomp://thomas@127.0.0.1:1", amqp_url=f"amqp://{server.address}"))


def broker(url: str, **more: str) -> ActiveMQBroker:
    return ActiveMQBroker("b", "artemis", url=url, password_env="THOMAS", timeout=UNHURRIED, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("connect", [to_openwire, to_amqp])
def test_no_host_that_the_broker_names_gets_a_connection(
    connect: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOMAS", "s3cret")
    with Server(then_hang_up(b""), "127.0.0.2") as thief:
        with pytest.raises(BrokerError, match=r"elsewhere|ended") as said:
            connect(thief.address)
        assert (thief.connections, "s3cret" in str(said.value)) == (0, False)
