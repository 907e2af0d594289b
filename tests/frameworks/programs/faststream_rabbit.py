"""Handlers of FastStream on RabbitMQ that reject, raise, or get what is no order."""

import asyncio

from faststream import AckPolicy, FastStream
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import RabbitBroker, RabbitQueue
from faststream.rabbit.annotations import RabbitMessage
from lab import LETTERS, MENDED, PREFIX, URL, Declined, Hiccup, take
from pydantic import BaseModel

DEAD = RabbitQueue(f"{PREFIX}shop.dead", durable=True)
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD.name}
SHOP = RabbitQueue(f"{PREFIX}shop", durable=True, arguments=TO_DEAD)
broker = RabbitBroker(URL)
app = FastStream(broker)


class Order(BaseModel):
    letter: str
    amount: int | str if MENDED else int


@broker.subscriber(SHOP, ack_policy=AckPolicy.REJECT_ON_ERROR)
async def pay(order: Order, message: RabbitMessage) -> None:
    try:
        way = take(order.letter, message.body.decode(), dict(message.raw_message.headers))
    except Hiccup as error:
        raise NackMessage(requeue=True) from error
    if way == "rejected":
        raise RejectMessage
    if way:
        raise Declined(order.letter)


@app.after_startup
async def send() -> None:
    await broker.declare_queue(DEAD)
    for letter in () if MENDED else LETTERS:
        amount = "many" if letter.startswith("invalid.") else 7
        await broker.publish({"letter": letter, "amount": amount}, SHOP, headers={"tenant": "7"})


asyncio.run(app.run())
