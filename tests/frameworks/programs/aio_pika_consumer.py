"""A consumer of aio-pika that rejects, raises, gives back until the queue's limit, or never comes."""

import asyncio
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from lab import LETTERS, MENDED, PREFIX, URL, Declined, Hiccup, take

SHOP, LIMITED, WAIT, DEAD = (f"{PREFIX}{name}" for name in ("shop", "shop.limited", "shop.wait", "shop.dead"))
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
QUEUES: dict[str, dict[str, Any]] = {
    SHOP: TO_DEAD,
    LIMITED: {**TO_DEAD, "x-queue-type": "quorum", "x-delivery-limit": 2},
    WAIT: TO_DEAD,
}
WAYS = {"limit": LIMITED, "expired": WAIT}


async def consume(message: AbstractIncomingMessage) -> None:
    """What the shop does with an order."""
    letter = str(message.message_id)
    try:
        way = take(letter, message.body.decode(), dict(message.headers))
        if way == "raised":
            async with message.process():
                raise Declined(letter)
        elif way == "rejected":
            await message.reject(requeue=False)
        elif way == "limit":
            await message.reject(requeue=True)
        else:
            await message.ack()
    except Hiccup:
        await message.reject(requeue=True)


async def main() -> None:
    """Send the orders, and consume those that somebody shall have."""
    connection = await aio_pika.connect_robust(URL)
    channel = await connection.channel()
    await channel.declare_queue(DEAD, durable=True)
    queues = [
        await channel.declare_queue(name, durable=True, arguments=told) for name, told in QUEUES.items()
    ]
    for letter in () if MENDED else LETTERS:
        way = letter.partition(".")[0]
        message = aio_pika.Message(
            f"an order, {letter}".encode(), message_id=letter, headers={"tenant": 7, "trace": "0af7"},
            delivery_mode=2, expiration=0.05 if way == "expired" else None,
        )  # fmt: skip
        await channel.default_exchange.publish(message, WAYS.get(way, SHOP))
    for queue in queues:
        if MENDED or queue.name != WAIT:
            await queue.consume(consume)
    await asyncio.Future()


asyncio.run(main())
