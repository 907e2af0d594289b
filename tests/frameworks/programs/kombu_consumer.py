"""A consumer of kombu that rejects orders: plain and compressed ones, and those it may not read."""

from typing import Any

from kombu import Connection, Consumer, Message, Queue
from kombu.mixins import ConsumerMixin
from lab import LETTERS, MENDED, PREFIX, URL, Hiccup, take

DEAD = Queue(f"{PREFIX}shop.dead")
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD.name}
SHOP = Queue(f"{PREFIX}shop", queue_arguments=TO_DEAD)
WAYS: dict[str, dict[str, Any]] = {"compressed": {"compression": "gzip"}, "unread": {"serializer": "pickle"}}


class Shop(ConsumerMixin):
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def get_consumers(self, consumer: type[Consumer], channel: Any) -> list[Consumer]:
        """The one, which may read pickles once it is mended."""
        accept = ["json", "pickle"] if MENDED else ["json"]
        return [consumer([SHOP], callbacks=[self.handle], accept=accept, on_decode_error=self.refuse)]

    def handle(self, body: Any, message: Message) -> None:
        try:
            failed = take(body["letter"], body, dict(message.headers))
        except Hiccup:
            message.requeue()
            return
        if failed:
            message.reject()
        else:
            message.ack()

    def refuse(self, message: Message, error: Exception) -> None:
        """What cannot be read is rejected: what most write here, since kombu itself raises."""
        message.reject()


with Connection(URL) as connection:
    DEAD(connection).declare()
    SHOP(connection).declare()
    producer = connection.Producer(serializer="json")
    for each in () if MENDED else LETTERS:
        headers = {"order": each, "tenant": 7}
        way = WAYS.get(each.partition(".")[0], {})
        producer.publish({"letter": each}, routing_key=SHOP.name, headers=headers, **way)
    Shop(connection).run()
