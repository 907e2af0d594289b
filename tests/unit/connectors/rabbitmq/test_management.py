"""What the management API of RabbitMQ is asked, and how often."""

import os
import socket

import pytest
from support.servers.hostile import Server

from dlq.connectors.rabbitmq import management
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, ManagementError

GOING = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> RabbitBroker:
    monkeypatch.setitem(os.environ, "WEB", "s3cret")
    monkeypatch.setattr(management, "_PAUSE", 0.0)
    return RabbitBroker("b", "rabbitmq", "amqp://u@h", password_env="WEB")


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([GONE], None),
        ([GOING, GONE], None),
        ([GOING, GOING, GONE], None),
        ([GOING] * 3, "does not answer: HTTP 500 Internal Server Error"),
    ],
)
def test_what_goes_away_while_it_is_looked_at_is_asked_for_again(
    broker: RabbitBroker, answers: list[bytes], says: str | None
) -> None:
    left = [*answers]

    def answer(peer: socket.socket) -> None:
        while peer.recv(2**16):
            peer.sendall(left.pop(0))

    with Server(answer) as server:
        asked = Management(RabbitBroker(**{**vars(broker), "management_url": f"http://{server.address}"}))
        if says is None:
            assert asked.get("queues", "/", "gone") is None
        else:
            with pytest.raises(ManagementError, match=says):
                asked.get("queues", "/", "gone")
    assert left == []
