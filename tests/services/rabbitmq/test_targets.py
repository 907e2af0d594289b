"""Each kind of target on RabbitMQ, by each protocol that letters go out by, is proven by who receives."""

import pytest
from proton import symbol
from support.brokers.rabbitmq.amqp10 import captured, poison, send
from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4
from support.brokers.rabbitmq.letters import letter, new_plan, publish, record, to_queue
from support.rows import each_row

from dlq.connectors.base import Target
from dlq.connectors.rabbitmq.send import exchange_to
from dlq.core.record import Record

pytestmark = pytest.mark.rabbitmq
KINDS = ["queue", "direct", "fanout", "topic", "headers", "default", "alternate", "between exchanges"]


def target_of(rabbit: Rabbit, kind: str, queue: str) -> Target:
    """A target of that kind that leads to the queue."""
    channel, name = rabbit.channel, f"{kind}-{queue}"
    if kind in ("queue", "default"):
        return to_queue(queue) if kind == "queue" else Target("exchange", "", queue)
    if kind == "alternate":
        channel.exchange_declare("taker", "fanout")
        channel.queue_bind(queue, "taker")
        channel.exchange_declare(name, "direct", arguments={"alternate-exchange": "taker"})
        return Target("exchange", name, "nobody.is.bound.for.it")
    if kind == "between exchanges":
        channel.exchange_declare(name, "topic")
        channel.exchange_declare("inner", "fanout")
        channel.exchange_bind("inner", name, "order.#")
        channel.queue_bind(queue, "inner")
        return Target("exchange", name, "order.created.now")
    bound, table, key = {
        "direct": ("k", None, "k"), "fanout": ("", None, ""), "topic": ("order.*", None, "order.created"),
        "headers": ("", {"x-match": "all", "region": "north"}, ""),
    }[kind]  # fmt: skip
    channel.exchange_declare(name, kind)
    channel.queue_bind(queue, name, bound, table)
    return Target("exchange", name, key)


def by_1_0(rabbit: Rabbit) -> Record:
    """One that AMQP 1.0 alone carries."""
    send(rabbit, source := rabbit.queue(), poison(b"letter", properties={"region": "north"}))
    [found] = captured(rabbit.broker(), source)
    return found


def arrives(rabbit: Rabbit, kind: str, what: Record) -> None:
    queue = rabbit.queue()
    target = target_of(rabbit, kind, queue)
    [said] = publish(rabbit.broker(), [letter(1, target, what)]).values()
    assert (said.outcome, said.detail) == ("confirmed", None)
    rabbit.wait_for(queue, 1)
    assert [one.body for one in captured(rabbit.broker(), queue)] == [b"letter"]


@each_row("kind", KINDS)
def test_a_letter_reaches_each_kind_of_target(rabbit: Rabbit, kind: str) -> None:
    arrives(rabbit, kind, record(b"letter", headers={"region": "north"}))


@on_rabbitmq_4
@each_row("kind", KINDS)
def test_a_letter_of_amqp_1_0_reaches_each_kind_of_target(rabbit: Rabbit, kind: str) -> None:
    arrives(rabbit, kind, by_1_0(rabbit))


@on_rabbitmq_4
def test_a_letter_of_amqp_1_0_keeps_the_keys_that_it_came_with(rabbit: Rabbit) -> None:
    channel, dead = rabbit.channel, rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead, x_message_ttl=1)
    channel.exchange_declare("shop", "topic")
    channel.queue_bind(work, "shop", "order.#")
    send(rabbit, "/exchanges/shop/order.new", poison(annotations={symbol("x-cc"): ["copy"]}))
    rabbit.wait_for(dead, 1)
    [died] = captured(rabbit.broker(), dead)
    target, plan = to_queue(rabbit.queue()), new_plan()
    publish(rabbit.broker(), [letter(1, target, died)], plan=plan, private=[target])
    [again] = captured(rabbit.broker(), target.name)
    assert (again.routing_key, "copy" in again.headers["x-cc"]) == ("order.new", True)
    assert again.exchange == exchange_to(plan, target.name)
