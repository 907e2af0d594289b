"""A listener of stomp.py that never acknowledges: its connection is lost, or comes too late."""

import threading
import time
from typing import Any

import stomp
from lab import LETTERS, MENDED, PREFIX, URL, Hiccup, take

QUEUE, WAIT = f"{PREFIX}shop", f"{PREFIX}shop.wait"
login, _, server = URL.partition("@")
user, _, password = login.partition(":")
host, _, port = server.partition(":")


class Shop(stomp.ConnectionListener):
    """Takes orders; one that it does not acknowledge comes again when the connection is lost."""

    def __init__(self, connection: Any, lost: threading.Event) -> None:
        self.connection, self.lost = connection, lost

    def on_message(self, frame: Any) -> None:
        if self.lost.is_set():
            return
        try:
            way = take(frame.headers["letter"], frame.body, own(frame.headers))
        except Hiccup:
            way = "hiccup"
        if way:
            self.lost.set()
        else:
            self.connection.ack(frame.headers["ack"])


def own(headers: dict[str, str]) -> dict[str, str]:
    """Without what the broker says of this delivery."""
    told = ("message-id", "ack", "subscription", "redelivered", "receipt", "destination", "timestamp")
    return {name: value for name, value in headers.items() if name not in told}


def connected() -> Any:
    connection = stomp.Connection12([(host, int(port))], auto_content_length=False)
    connection.connect(user, password, wait=True)
    return connection


def consume_until_lost() -> None:
    lost = threading.Event()
    connection = connected()
    connection.set_listener("shop", Shop(connection, lost))
    for number, queue in enumerate((QUEUE, WAIT)):
        how = {"subscription-type": "ANYCAST"}
        connection.subscribe(queue, id=number, ack="client-individual", headers=how)
    lost.wait()
    connection.transport.disconnect_socket()


sender = connected()
for each in () if MENDED else LETTERS:
    headers = {"destination-type": "ANYCAST", "letter": each, "tenant": "7", "persistent": "true"}
    is_late = each.startswith("expired.")
    if is_late:
        headers["expires"] = str(int(time.time() * 1000) + 300)
    sender.send(WAIT if is_late else QUEUE, f"an order, {each}", headers=headers)
time.sleep(0 if MENDED else 0.3)
while True:
    consume_until_lost()
