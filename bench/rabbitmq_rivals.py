"""What dlq is measured against on the same node: a shovel, and stock pika in and out."""

import base64
import json
import time
import urllib.request
from itertools import count
from urllib.parse import quote

import pika

PREFETCH = WINDOW = 1000
ACK_EVERY = 500


def shovel(url: str, http: str, source: str, target: str, letters: int) -> float:
    """Seconds in which a dynamic amqp091 shovel moves all letters from queue to queue."""
    definition = {
        "src-protocol": "amqp091", "src-uri": url, "src-queue": source, "src-delete-after": "queue-length",
        "src-prefetch-count": PREFETCH, "dest-protocol": "amqp091", "dest-uri": url, "dest-queue": target,
        "ack-mode": "on-confirm",
    }  # fmt: skip
    address = f"{http}/api/parameters/shovel/{quote('/', safe='')}/bench-{time.time_ns()}"
    login = base64.b64encode(b"guest:guest").decode()
    asked = urllib.request.Request(
        address, json.dumps({"value": definition}).encode(), method="PUT",
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )  # fmt: skip
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    started = time.perf_counter()
    urllib.request.urlopen(asked).close()
    while channel.queue_declare(target, passive=True).method.message_count < letters:
        time.sleep(0.05)
    taken = time.perf_counter() - started
    channel.connection.close()
    return taken


def pika_consumer(url: str, queue: str, letters: int) -> float:
    """Seconds in which a stock pika consumer takes all letters and throws them away."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    numbers = count(1)

    def take(_channel: object, method: pika.spec.Basic.Deliver, _properties: object, _body: bytes) -> None:
        number = next(numbers)
        if number % ACK_EVERY == 0 or number == letters:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if number == letters:
            channel.stop_consuming()

    channel.basic_consume(queue, take)
    started = time.perf_counter()
    channel.start_consuming()
    taken = time.perf_counter() - started
    channel.connection.close()
    return taken


def pika_confirms(url: str, queue: str, letters: int, headers: dict[str, object], body: bytes) -> float:
    """Seconds in which pika publishes mandatory messages with confirms, a window in flight."""
    sent = acked = 0
    started = ended = 0.0
    early: set[int] = set()

    def pump(channel: pika.channel.Channel) -> None:
        nonlocal sent
        while sent - acked < WINDOW and sent < letters:
            properties = pika.BasicProperties(headers=headers, delivery_mode=2, message_id=str(sent))
            channel.basic_publish("", queue, body, properties, mandatory=True)
            sent += 1

    def on_confirm(channel: pika.channel.Channel, frame: pika.frame.Method) -> None:
        nonlocal acked, early, ended
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            early = {other for other in early if other > tag}
            acked = tag + len(early)
        else:
            early.add(tag)
            acked += 1
        if acked >= letters:
            ended = time.perf_counter()
            channel.connection.close()
        pump(channel)

    def on_channel(channel: pika.channel.Channel) -> None:
        def begin(_frame: object) -> None:
            nonlocal started
            started = time.perf_counter()
            pump(channel)

        channel.confirm_delivery(lambda frame: on_confirm(channel, frame), callback=begin)

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda opened: opened.channel(on_open_callback=on_channel),
        on_close_callback=lambda closed, _error: closed.ioloop.stop(),
    )
    connection.ioloop.start()
    return ended - started
