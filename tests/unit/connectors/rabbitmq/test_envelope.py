"""With which exchange and keys a letter first came to a queue, from what it says itself."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pika
from support.rows import each_row

from dlq.connectors.base import Outgoing, Target
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.records.envelope import Way, first_delivered
from dlq.connectors.rabbitmq.republish import preview_unasked
from dlq.connectors.rabbitmq.send import Ways, exchange_to
from dlq.core.record import Record

BROKER = RabbitBroker("shop", "rabbitmq", url="amqp://u@h")
ORDERS = Target("queue", "orders")


def death(queue: str, exchange: str, *keys: str | bytes, second: int = 0, reason: str = "rejected") -> Any:
    when = datetime(2026, 11, 2, 3, 12, second, tzinfo=UTC)
    told = {"queue": queue, "reason": reason, "exchange": exchange, "routing-keys": [*keys]}
    return {**told, "count": 1, "time": when}


def letter(*deaths: Any, **headers: Any) -> Record:
    given = {
        **({"x-death": [*deaths]} if deaths else {}),
        **{k if k == "root_id" else k.replace("_", "-"): headers[k] for k in headers},
    }
    block = b"".join(pika.BasicProperties(headers=given).encode())
    return Record("r", "s", "b", "rabbitmq", "orders.dlq", raw_properties=block)


CAME: Mapping[str, tuple[Record, Way | None]] = {
    "as its death says": (letter(death("orders", "shop", "order.new", "cc")),
     Way("shop", "order.new", ("cc",))),
    "before it waited for a retry": (
        letter(
            death("wait", "", "wait", second=1, reason="expired"),
            death("orders", "", "orders", second=5, reason="expired"),
            death("orders", "shop", "order.new", second=1),
        ),
        Way("shop", "order.new"),
    ),
    "as a framework noted, which parked it elsewhere": (
        letter(
            death("carts", "shop", "cart.new"), x_original_exchange="shop",
            x_original_routingKey="order.new",
        ),
        Way("shop", "order.new"),
    ),
    "as it was published, of a queue where it never was": (
        letter(
            death("c", "dlx", "later"), death("a", "shop", "first", reason="maxlen"),
            death("b", "dlx", "then"), x_first_death_queue="a", x_first_death_reason="maxlen",
        ),
        Way("shop", "first"),
    ),
    "with nothing that tells": (letter(tenant="eu"), None),
    "with a key that is no text": (letter(death("orders", "shop", b"\xff")), None),
}  # fmt: skip


@each_row("how", CAME)
def test_a_letter_came(how: str) -> None:
    record, expected = CAME[how]
    assert first_delivered(record, "orders") == expected


TOPIC = letter(death("orders", "shop", "order.new", "cc"))
TASK = letter(death("orders", "shop", "order.new"), task="t", id="1", root_id="1")
BY_DEFAULT, OWN = Way("", "orders"), exchange_to("plan", "orders")
GOES = [
    (TOPIC, [ORDERS], Way(OWN, "order.new", ("cc",))),
    (TOPIC, [], BY_DEFAULT),  # the plan has no way of its own there
    (letter(death("orders", "shop", "orders", "cc")), [ORDERS], Way(OWN, "orders", ("cc",))),
    (letter(death("orders", "shop", "orders")), [ORDERS], BY_DEFAULT),
    (letter(), [ORDERS], BY_DEFAULT),
    (TASK, [ORDERS], BY_DEFAULT),  # of Celery, which finds that exchange again for retries
]


@each_row("record, private, way", GOES)
def test_only_what_the_default_exchange_would_change_goes_by_an_exchange_of_the_plans_own(
    record: Record, private: list[Target], way: Way
) -> None:
    assert Ways(BROKER, "plan", private).way_of(Outgoing(0, record, ORDERS, {})) == way


def test_who_asks_no_broker_says_what_consumers_will_see() -> None:
    asked = preview_unasked(Outgoing(0, letter(death("orders", "shop", "order.new")), ORDERS, {}))
    assert not asked.private
    assert "its name as the key, and no CC: the broker was not asked" in asked.warnings[-1]
    assert not preview_unasked(Outgoing(0, letter(death("orders", "", "orders")), ORDERS, {})).warnings
