"""What the management API of RabbitMQ is asked, and how often."""

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.servers.hostile import Server

from dlq.connectors.rabbitmq import management
from dlq.connectors.rabbitmq.consumption import list_queues
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.discovery import discover
from dlq.connectors.rabbitmq.management import Management, ManagementError
from dlq.connectors.rabbitmq.nodes import describe_nodes
from dlq.connectors.rabbitmq.queue_pattern import resolve
from dlq.connectors.rabbitmq.witness import _bound, _may_lack, _wait_for_the_end_of
from dlq.core.errors import BrokerError

GOING = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> RabbitBroker:
    monkeypatch.setitem(os.environ, "WEB", "s3cret")
    monkeypatch.setattr(management, "_PAUSE", 0.0)
    return RabbitBroker("b", "rabbitmq", "amqp://u@h", password_env="WEB")


@pytest.fixture
def knowing_nothing(broker: RabbitBroker) -> Iterator[RabbitBroker]:
    """Its management API answers 404 whatever it is asked: another path, a gateway, no such virtual host."""

    def answer(peer: socket.socket) -> None:
        while peer.recv(2**16):
            peer.sendall(GONE)

    with Server(answer) as server:
        yield RabbitBroker(**{**vars(broker), "management_url": f"http://{server.address}"})


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


LOOKS: dict[str, Callable[[RabbitBroker], Any]] = {
    "dead-letter queues": discover,
    "all queues": list_queues,
    "the queues of a pattern": lambda broker: resolve(broker, "*.dlq"),
    "nodes": lambda broker: describe_nodes(Management(broker)),
    "the connections of a dead sender": lambda broker: _wait_for_the_end_of("of a plan", Management(broker)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_list_that_is_not_there_is_not_an_empty_one(look: str, knowing_nothing: RabbitBroker) -> None:
    with pytest.raises(BrokerError, match=r"management_url \(127.*knows nothing of .*is the path right\?"):
        LOOKS[look](knowing_nothing)


def test_an_exchange_that_is_gone_has_no_bindings(knowing_nothing: RabbitBroker) -> None:
    assert _bound(Management(knowing_nothing), "p", {"orders"}) == set()


def test_a_target_that_is_not_shown_may_lack_what_its_witness_holds(knowing_nothing: RabbitBroker) -> None:
    assert _may_lack(Management(knowing_nothing), {"q"}) == {"q"}
