"""Letters that RabbitMQ 4 has by AMQP 1.0: sent by a client of other hands, and captured."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from proton import Message
from proton.utils import BlockingConnection
from support.brokers.rabbitmq.fixtures import Rabbit, request
from support.connector_contract import Place, drained
from support.waiting import PATIENCE

from dlq.connectors.base import Reading, ReadRequest
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.record import Record

SEVEN = UUID(int=7)
"""As a property of a letter it is none that AMQP 0-9-1 has a type for."""


@contextmanager
def connected(rabbit: Rabbit) -> Iterator[Any]:
    server, host = f"amqp://127.0.0.1:{rabbit.node.port}", f"vhost:{rabbit.vhost}"
    who = {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN"}
    with closing(BlockingConnection(server, timeout=PATIENCE, virtual_host=host, **who)) as connection:
        yield connection


def plain(body: object, **more: Any) -> Message:
    return Message(body=body, inferred=True, durable=True, **more)


def poison(body: object = b"x", **more: Any) -> Message:
    """One that AMQP 0-9-1 cannot carry."""
    return plain(body, properties={"poison": SEVEN, **more.pop("properties", {})}, **more)


def send(rabbit: Rabbit, queue: str, *messages: Message) -> None:
    """To a queue, or to an address, which begins with a stroke."""
    with connected(rabbit) as connection:
        sender = connection.create_sender(queue if queue.startswith("/") else f"/queues/{queue}")
        for one in messages:
            sender.send(one)


def send_some(rabbit: Rabbit, queue: str, number: int, poisoned: int, first: int = 0) -> None:
    """Numbered ones, of which one is poison."""
    bodies = [b"%d" % (first + i) for i in range(number)]
    send(rabbit, queue, *[(poison if i == poisoned else plain)(body) for i, body in enumerate(bodies)])


def received(rabbit: Rabbit, queue: str) -> Message:
    with connected(rabbit) as connection:
        receiver = connection.create_receiver(f"/queues/{queue}")
        found = receiver.receive(timeout=PATIENCE)
        receiver.accept()
        return found


class Careful(RabbitConnector):
    """As a pull reads after a poisoned connection."""

    def read(self, request: ReadRequest) -> Reading:
        return super().read(replace(request, careful=True))


def captured(broker: RabbitBroker, queue: str) -> list[Record]:
    """All letters of a queue, drained."""
    return drained(Place(Careful(broker), request(queue).source, lambda _n: []))


def a_poison(rabbit: Rabbit) -> Record:
    """A captured letter that goes back by AMQP 1.0."""
    queue = rabbit.queue()
    send(rabbit, queue, poison())
    [found] = captured(rabbit.broker(), queue)
    return found
