"""A receiver of python-qpid-proton (AMQP 1.0) that rejects, gives back as failed until the broker's limit, or
comes too late."""

import uuid
from typing import Any

from lab import LETTERS, MENDED, PREFIX, URL, Hiccup, take
from proton import Message, ulong
from proton.handlers import MessagingHandler
from proton.reactor import Container

SHOP, WAIT = f"{PREFIX}shop", f"{PREFIX}shop.wait"
BODIES: dict[str, dict[str, Any]] = {
    "rejected": {"body": b"\x00an order", "inferred": True, "id": ulong(7), "content_type": "text/plain"},
    "failed": {"body": {"amounts": [1, uuid.UUID(int=7)]}, "id": uuid.UUID(int=9)},
    "expired": {"body": None, "id": "an id", "ttl": 0.3},
}


class Shop(MessagingHandler):
    """Sends the orders, and takes what comes."""

    def __init__(self) -> None:
        super().__init__(auto_accept=False)
        self.accepted = 0

    def on_start(self, event: Any) -> None:
        """Connect; what is late shall be so before anybody receives."""
        self.connection = event.container.connect(f"amqp://{URL}", allowed_mechs="PLAIN")
        for queue in () if MENDED else (SHOP, WAIT):
            event.container.create_sender(self.connection, queue)
        if MENDED:
            self.on_timer_task(event)

    def on_link_opened(self, event: Any) -> None:
        if not event.link.is_sender:
            return
        for letter in LETTERS:
            way = letter.partition(".")[0]
            if (way == "expired") == (event.link.target.address == WAIT):
                properties = {"tenant": 7, "trace": uuid.UUID(int=3), "letter": letter}
                event.link.send(Message(durable=True, properties=properties, **BODIES[way]))

    def on_accepted(self, event: Any) -> None:
        """When all are stored, receive."""
        self.accepted += event.link.is_sender
        if self.accepted == len(LETTERS) and not MENDED:
            event.container.schedule(0.4, self)

    def on_timer_task(self, event: Any) -> None:
        for queue in (SHOP, WAIT):
            event.container.create_receiver(self.connection, queue)

    def on_message(self, event: Any) -> None:
        message = event.message
        body = bytes(message.body) if isinstance(message.body, memoryview) else message.body
        told = {"id": repr(message.id), "content_type": message.content_type, "inferred": message.inferred}
        try:
            way = take(message.properties["letter"], repr(body), {**message.properties, **told})
        except Hiccup:
            way = "failed"
        if way == "rejected":
            self.reject(event.delivery)
        elif way:
            event.delivery.local.failed = True
            self.release(event.delivery, delivered=True)
        else:
            self.accept(event.delivery)


Container(Shop()).run()
