"""A broker that names another host for its clients: nothing goes there, least of all a password."""

import struct
from collections.abc import Callable

import pytest
from support.brokers.hostile import OPENWIRE_CONNECT, hang_up, openwire, openwire_command
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


def broker(url: str, **more: str) -> ActiveMQBroker:
    return ActiveMQBroker("b", "artemis", url=url, password_env="THOMAS", timeout=UNHURRIED, **more)  # type: ignore[arg-type]


def to_openwire(thief: str) -> None:
    """Classic's ConnectionControl with connectedBrokers, reconnectTo and rebalanceConnection."""
    url = f"tcp://{thief}".encode()
    name = b"\1" + struct.pack(">H", len(url)) + url
    said = openwire_command(_CONNECTION_CONTROL, bytes(5) + name + name + b"\1")
    with Server(openwire(lambda peer: peer.sendall(said), OPENWIRE_CONNECT)) as server:
        OpenWireConnection(broker(f"tcp://thomas@{server.address}"))


def to_amqp(thief: str) -> None:
    """How Artemis' connection router says that a client is another broker's."""
    host, _, port = thief.partition(":")
    names = [symbol(name) + string(host) for name in ("hostname", "network-host")]
    told = mapping([*names, symbol("port") + uint(int(port))])
    error = described_value(_ERROR, sequence([symbol("amqp:connection:redirect"), string("elsewhere"), told]))
    opened = frames.frame(frames.OPEN, [string("b"), NULL, uint(frames.MAX_FRAME)])
    said = opened + frames.frame(frames.CLOSE, [error])
    with Server(Taking({frames.OPEN: lambda _peer, _frame: said})) as server:
        Amqp10Sender(broker("stomp://thomas@127.0.0.1:1", amqp_url=f"amqp://{server.address}"))


@pytest.mark.parametrize("connect", [to_openwire, to_amqp])
def test_no_host_that_the_broker_names_gets_a_connection(
    connect: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOMAS", "s3cret")
    with Server(hang_up, "127.0.0.2") as thief:
        with pytest.raises(BrokerError, match=r"elsewhere|ended") as said:
            connect(thief.address)
        assert (thief.connections, "s3cret" in str(said.value)) == (0, False)
