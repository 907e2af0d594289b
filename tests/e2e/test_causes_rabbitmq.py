"""Letters of every RabbitMQ cause, killed by a real broker, come out of the command with the right names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from support.brokers.rabbitmq.fixtures import Rabbit
from support.wire_builders import configure_rabbitmq

EACH = 5
STACK = (
    "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception\n"
    "\tat o.s.A.b(A.java:1)\n"
    "Caused by: java.net.SocketTimeoutException: no answer\n\tat com.shop.Pay.go(Pay.java:7)\n"
)
PARKED = {"x-exception-stacktrace": STACK, "x-exception-message": "no answer"}
VERDICTS = {
    "rejected": ("poison_ack", "reject", 1),
    "looped": ("poison_ack", "retry_loop", 2),
    "moved": ("poison_ack", "reject", 1),
    "expired": ("expired", "ttl", None),
    "overflown": ("overflow", "maxlen", None),
    "limited": ("redelivery_exhausted", "delivery_limit", 1),
    "unroutable": ("unroutable", "alternate_exchange", None),
    "parked": ("application_error", "framework", None),
    "mystery": ("unknown", "none", None),
}
"""Message id prefix -> cause, mechanism and attempts."""


class Killer:
    """Makes dead letters of each cause, `EACH` of them, all in one dead-letter queue."""

    def __init__(self, rabbit: Rabbit) -> None:
        self.rabbit, self.channel = rabbit, rabbit.channel
        self.letters = rabbit.queue()
        self.channel.exchange_declare("dlx", "fanout")
        self.channel.queue_bind(self.letters, "dlx")

    def publish(self, name: str, exchange: str, key: str, headers: dict[str, Any] | None = None) -> None:
        for number in range(EACH):
            properties = pika.BasicProperties(delivery_mode=2, message_id=f"{name}-{number}", headers=headers)
            self.channel.basic_publish(exchange, key, b'{"id": %d}' % number, properties)

    def refuse(self, queue: str, requeue: bool = False) -> None:
        self.rabbit.wait_for(queue, EACH)
        for _ in range(EACH):
            self.channel.basic_nack(self.channel.basic_get(queue)[0].delivery_tag, requeue=requeue)

    def all(self) -> None:
        dead = {"x_dead_letter_exchange": "dlx"}
        work = self.rabbit.queue(**dead)
        self.publish("rejected", "", work)
        self.refuse(work)
        self.loop()
        self.move_on()
        self.publish("expired", "", self.rabbit.queue(x_message_ttl=1, **dead))
        self.publish("overflown", "", self.rabbit.queue(x_max_length=0, **dead))
        limited = self.rabbit.queue("quorum", x_delivery_limit=0, **dead)
        self.publish("limited", "", limited)
        self.limit(limited)
        self.channel.exchange_declare("shop", "direct", arguments={"alternate-exchange": "dlx"})
        self.publish("unroutable", "shop", "no.such.key")
        self.publish("parked", "dlx", "error.order", PARKED)
        self.publish("mystery", "", self.letters)
        self.rabbit.wait_for(self.letters, EACH * len(VERDICTS))

    def loop(self) -> None:
        """work -> wait -> work, then to the dead-letter queue by the application."""
        wait = self.rabbit.queue(
            x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key="looping"
        )
        retry = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait}
        self.channel.queue_declare("looping", durable=True, arguments=retry)
        self.publish("looped", "", "looping")
        self.refuse("looping")
        self.rabbit.wait_for("looping", EACH)
        for _ in range(EACH):
            method, properties, body = self.channel.basic_get("looping")
            self.channel.basic_publish("dlx", "looping", body, properties)
            self.channel.basic_ack(method.delivery_tag)

    def move_on(self) -> None:
        """work -> a dead-letter queue with a TTL -> the parking queue; it never came back."""
        waits = self.rabbit.queue(x_message_ttl=20, x_dead_letter_exchange="dlx")
        work = self.rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=waits)
        self.publish("moved", "", work)
        self.refuse(work)

    def limit(self, queue: str) -> None:
        self.rabbit.wait_for(queue, EACH)
        channel = self.rabbit.connect()
        tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(EACH)]
        channel.basic_reject(tags[-1], requeue=True)
        for tag in tags[:-1]:
            channel.basic_reject(tag, requeue=True)
        channel.connection.close()


@pytest.fixture
def killer(rabbit: Rabbit) -> Killer:
    return Killer(rabbit)


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("name", "cause", "mechanism", "attempts", "n"))


def test_every_cause_is_told_from_the_others(killer: Killer, dlq: Callable[..., Any], tmp_path: Path) -> None:
    killer.all()
    configure_rabbitmq(tmp_path, killer.rabbit, killer.letters)
    pulled = dlq("pull", "--mode", "drain", "-o", "json")
    assert pulled.code == 0, pulled.err
    assert pulled.json["sources"][0]["captured"] == EACH * len(VERDICTS)
    analyzed = dlq("analyze", "-o", "json")
    assert analyzed.code == 0, analyzed.err
    name = "split_part(message_id, '-', 1) as name"
    sql = f"select {name}, cause, mechanism, attempts, count(*) as n from letters group by all"
    found = {told(row) for row in dlq("query", sql).rows}
    assert found == {(name, *verdict, EACH) for name, verdict in VERDICTS.items()}
    assert dlq("report", "--fail-on", "unknown > 50%").code == 0
    assert dlq("report", "--fail-on", "unknown > 10%").code == 5
    assert dlq("verify").rows[0]["balanced"] is True
    assert dlq("export", "letters.jsonl").code == 0
    (tmp_path / "elsewhere.toml").write_text('archive = "elsewhere"\n')
    assert dlq("-c", "elsewhere.toml", "import", "letters.jsonl").code == 0
    assert {told(row) for row in dlq("-c", "elsewhere.toml", "query", sql).rows} == found
