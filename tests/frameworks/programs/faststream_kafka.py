"""Handlers of FastStream on Kafka that park what they fail on, and get what is no order."""

import asyncio
import traceback

from confluent_kafka.admin import AdminClient, NewTopic
from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage
from lab import LETTERS, MENDED, PREFIX, URL, Declined, Hiccup, take
from pydantic import BaseModel

ORDERS, DEAD = f"{PREFIX}orders", f"{PREFIX}orders.dlq"
broker = KafkaBroker(URL)
app = FastStream(broker)


class Order(BaseModel):
    letter: str


@broker.subscriber(
    ORDERS, group_id=f"{PREFIX}billing", auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL
)
async def pay(order: Order, message: KafkaMessage) -> None:
    """Pay for an order; FastStream has no dead-letter topic of its own, so the handler parks it."""
    try:
        way = take(order.letter, message.body.decode(), dict(message.headers))
        if way:
            raise Declined("declined")
    except Hiccup:
        await message.nack()
        return
    except Declined as error:
        await broker.publish(message.body, DEAD, key=b"k", headers=marked(message, error))
    await message.ack()


def marked(message: KafkaMessage, error: Exception) -> dict[str, str]:
    """The message's headers, and what many add by hand."""
    return {
        **message.headers,
        "x-original-topic": ORDERS,
        "x-exception-class": f"{type(error).__module__}.{type(error).__qualname__}",
        "x-exception-message": str(error),
        "x-exception-stacktrace": traceback.format_exc(),
    }


@app.after_startup
async def send() -> None:
    for letter in () if MENDED else LETTERS:
        await broker.publish({"letter": letter}, ORDERS, key=b"k", headers={"tenant": "7"})


admin = AdminClient({"bootstrap.servers": URL})
if not MENDED:
    for topic in admin.create_topics([NewTopic(ORDERS, 1, 1), NewTopic(DEAD, 1, 1)]).values():
        topic.result(30)
asyncio.run(app.run())
