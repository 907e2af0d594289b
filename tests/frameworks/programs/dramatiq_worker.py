"""Actors of Dramatiq whose retries are used up, that throw what is not retried, or that nobody knows."""

import signal
from typing import Any

import dramatiq
from dramatiq import Message, Worker
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import CurrentMessage
from lab import LETTERS, MENDED, PREFIX, URL, Declined, take

QUEUE = f"{PREFIX}shop"


class Refused(Exception):
    """What the actor declares as not worth a retry."""


broker = RabbitmqBroker(url=URL, middleware=[*RabbitmqBroker(url=URL).middleware, CurrentMessage()])
dramatiq.set_broker(broker)
# Retries are counted in the body, which a replay leaves as it is: only more of them let a letter try again.
SETTINGS: dict[str, Any] = {"queue_name": QUEUE, "max_retries": 5 if MENDED else 2, "min_backoff": 10}


@dramatiq.actor(actor_name="pay", throws=Refused, **SETTINGS)
def pay(letter: str) -> None:
    message = CurrentMessage.get_current_message()
    assert message
    way = take(letter, [message.args, message.options], {"message_id": message.message_id})
    if way == "thrown":
        raise Refused(letter)
    if way:
        raise Declined("declined")


if MENDED:
    dramatiq.actor(pay.fn, actor_name="renamed", **SETTINGS)
else:
    for each in LETTERS:
        actor = "renamed" if each.startswith("unknown.") else "pay"
        broker.declare_queue(QUEUE, ensure=True)
        broker.enqueue(Message(QUEUE, actor, (each,), {}, {}))
worker = Worker(broker, worker_threads=1, worker_timeout=100)
worker.start()
signal.sigwait([signal.SIGTERM])
worker.stop()
