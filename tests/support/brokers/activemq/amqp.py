"""Artemis by AMQP 1.0, as a client of other hands speaks it: messages that die, and what comes back."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from proton import Message
from proton.utils import BlockingConnection
from support.brokers.activemq.fixtures import Place
from support.waiting import PATIENCE, eventually

from dlq.connectors.activemq.amqp.link import open_session
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.link.session import Delivery


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    """A connection of python-qpid-proton."""
    server = f"amqp://127.0.0.1:{place.broker.amqp}"
    user, password = place.broker.user, place.broker.password
    with closing(
        BlockingConnection(server, user=user, password=password, allowed_mechs="PLAIN", timeout=PATIENCE)
    ) as connection:
        yield connection


def died(place: Place, queue: str, *messages: Message, dead: str = "DLQ") -> None:
    """Send them to a queue, whose consumer rejects each; they lie in its dead-letter queue then."""
    before = place.depth(dead)
    with connected(place) as connection:
        sender = connection.create_sender(queue)
        for message in messages:
            sender.send(message)
        receiver = connection.create_receiver(queue)
        for _ in messages:
            receiver.receive(timeout=PATIENCE)
            receiver.reject()
    eventually(lambda: place.depth(dead) >= before + len(messages))


def received(place: Place, queue: str, number: int) -> list[Message]:
    """What a consumer of a queue gets and accepts."""
    with connected(place) as connection:
        receiver = connection.create_receiver(queue)
        found = []
        for _ in range(number):
            found.append(receiver.receive(timeout=PATIENCE))
            receiver.accept()
        return found


def encoded(place: Place, queue: str, number: int) -> Sequence[bytes]:
    """The messages of a queue byte for byte; they stay there."""
    session = open_session(place.settings)
    try:
        link = session.attach(frames.RECEIVER, queue)
        found: list[Delivery] = []

        def are_all_there() -> bool:
            session.ask(link, number - len(found))
            while not link.is_answered:
                session.turn(0.2)
            found.extend(session.take())
            return len(found) >= number

        eventually(are_all_there)
        for one in found:
            session.settle_unanswered(one.number, one.number, frames.state(frames.RELEASED))
        return [one.message for one in found]
    finally:
        session.close()
