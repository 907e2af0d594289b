"""Plays a bad night on a real RabbitMQ, and looks at it with dlq: `python docs/night.py FOLDER [MINUTES]`.

A private broker is started as in the tests. Orders fail with an exception now and then; for a while the
payment gateway hangs, and orders and invoices fail together; later the mailer is away, and its messages
expire. What FOLDER holds afterwards is what the pictures show (`docs/picture.py FOLDER`).
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.brokers.rabbitmq.broker import Node

_CONFIG = """\
archive = "archive"
[brokers.shop]
kind = "rabbitmq"
url = "amqp://guest@127.0.0.1:{port}/%2F"
password_env = "DLQ_NIGHT_PASSWORD"
management_url = "{http}"
"""
_SOURCE = '[sources.{name}]\nbroker = "shop"\nqueue = "{name}.dlq"\n'
_QUEUES = ("orders", "invoices", "mails")
_WRAPPED = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception"
)
_FAULTS = {
    "stock": (
        "com.shop.stock.NegativeStockException",
        "stock of SKU-{n} would be negative",
        "stock.Stock.take",
    ),
    "timeout": (
        "java.net.SocketTimeoutException",
        "gateway did not answer in 3000 ms",
        "payment.Gateway.charge",
    ),
    "refused": ("java.net.ConnectException", "Connection refused: gateway:443", "invoice.Sender.send"),
}
Channel = pika.adapters.blocking_connection.BlockingChannel


def declare(channel: Channel) -> None:
    """Mails live three seconds and are dead; orders and invoices are refused into a retry queue first."""
    for name in _QUEUES:
        ttl = {"x-message-ttl": 3000} if name == "mails" else {}
        to = f"{name}.dlq" if ttl else f"{name}.retry"
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
        channel.queue_declare(name, durable=True, arguments={**dead, **ttl})
        for other in (f"{name}.retry", f"{name}.dlq"):
            channel.queue_declare(other, durable=True)


def publish(channel: Channel, queue: str, number: int) -> None:
    body = json.dumps({"order": 4700 + number, "sku": f"SKU-{number % 7}", "total": 19.9 + number})
    channel.basic_publish("", queue, body.encode(), properties(number))


def properties(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(
        message_id=f"m-{number}", content_type="application/json", delivery_mode=2, timestamp=int(time.time())
    )


def fail(channel: Channel, queue: str, fault: str, number: int) -> None:
    """A consumer that fails twice: it refuses the message, then its framework parks it with the exception."""
    publish(channel, queue, number)
    method, _properties, _body = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    died = None
    while died is None:
        died, given, body = channel.basic_get(f"{queue}.retry")
    name, message, frame = _FAULTS[fault]
    message = message.format(n=number % 7)
    trace = f"{_WRAPPED}\nCaused by: {name}: {message}\n\tat com.shop.{frame}(Shop.java:42)\n"
    given.headers |= {
        "x-exception-message": message, "x-exception-stacktrace": trace, "x-original-exchange": "",
        "x-original-routingKey": queue,
    }  # fmt: skip
    channel.basic_publish("", f"{queue}.dlq", body, given)
    channel.basic_ack(died.delivery_tag)


def play(channel: Channel, minutes: float) -> None:
    """Twenty steps a minute; the gateway hangs for a fifth of the time, the mailer is away for another."""
    steps = int(20 * minutes)
    numbers = iter(range(10**6))
    for step in range(steps):
        part = step / steps
        if random.random() < 0.15:
            fail(channel, "orders", "stock", next(numbers))
        if 0.3 < part < 0.5:
            for _ in range(random.randrange(6)):
                fail(channel, "orders", "timeout", next(numbers))
            for _ in range(random.randrange(3)):
                fail(channel, "invoices", "refused", next(numbers))
        if 0.65 < part < 0.85:
            for _ in range(random.randrange(4)):
                publish(channel, "mails", next(numbers))
        channel.connection.sleep(3)


def main(folder: Path, minutes: float) -> None:
    """Play, drain, analyze."""
    folder.mkdir(parents=True)
    random.seed(11)
    with Node() as node:
        config = _CONFIG.format(port=node.port, http=node.http)
        (folder / "dlq.toml").write_text(config + "".join(_SOURCE.format(name=name) for name in _QUEUES))
        connection = pika.BlockingConnection(pika.URLParameters(node.url))
        channel = connection.channel()
        declare(channel)
        play(channel, minutes)
        connection.close()
        environment = {**os.environ, "DLQ_NIGHT_PASSWORD": "guest"}
        for words in (["pull", "--mode", "drain"], ["analyze"]):
            subprocess.run([sys.executable, "-m", "dlq.cli", *words], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 20)
