"""Each kind of target on RabbitMQ, by each protocol that letters go out by, is proven by who receives."""

from contextlib import closing
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from proton import Message, symbol
from proton.utils import BlockingConnection
from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4, request
from support.brokers.rabbitmq.letters import letter, new_plan, record, to_queue
from support.waiting import PATIENCE

from dlq.connectors.base import SendRequest, Target
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.send import exchange_to
from dlq.core.record import Record

pytestmark = pytest.mark.rabbitmq
KINDS = ["queue", "direct", "fanout", "topic", "headers", "default", "alternate", "between exchanges"]


def target_of(rabbit: Rabbit, kind: str, queue: str) -> Target:
    """A target of that kind that leads to the queue."""
    channel, name = rabbit.channel, f"{kind}-{queue}"
    if kind == "queue":
        return to_queue(queue)
    if kind == "default":
        return Target("exchange", "", queue)
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
    channel.exchange_declare(name, kind)
    key, table = {
        "direct": ("k", None), "fanout": ("", None), "topic": ("order.*", None),
        "headers": ("", {"x-match": "all", "region": "north"}),
    }[kind]  # fmt: skip
    channel.queue_bind(queue, name, key, table)
    return Target("exchange", name, {"direct": "k", "topic": "order.created"}.get(kind, ""))


def captured(rabbit: Rabbit, queue: str) -> list[Record]:
    """As a pull reads after a poisoned connection."""
    reading = RabbitConnector(rabbit.broker()).read(replace(request(queue), careful=True))
    found: list[Record] = []
    for batch in reading.batches():
        found += batch.records
        reading.acknowledge(batch.position)
    reading.settled_position()
    reading.close()
    return found


def by_0_9_1(_rabbit: Rabbit) -> Record:
    return record(b"letter", headers={"region": "north"})


def by_1_0(rabbit: Rabbit) -> Record:
    """One that AMQP 1.0 alone carries."""
    source = rabbit.queue()
    send_by_1_0(rabbit, f"/queues/{source}")
    [found] = captured(rabbit, source)
    return found


def send_by_1_0(rabbit: Rabbit, address: str, **more: Any) -> None:
    properties = {"region": "north", "poison": UUID(int=7)}
    server, host = f"amqp://127.0.0.1:{rabbit.node.port}", f"vhost:{rabbit.vhost}"
    who = {"user": "guest", "password": "guest", "allowed_mechs": "PLAIN"}
    with closing(BlockingConnection(server, timeout=PATIENCE, virtual_host=host, **who)) as connection:
        made = Message(body=b"letter", inferred=True, durable=True, properties=properties, **more)
        connection.create_sender(address).send(made)


def arrives(rabbit: Rabbit, kind: str, what: Record) -> None:
    queue = rabbit.queue()
    target = target_of(rabbit, kind, queue)
    publisher = RabbitConnector(rabbit.broker()).publisher(SendRequest(new_plan(), 10))
    said = list(publisher.publish(iter([letter(1, target, what)])))
    publisher.close()
    assert [(one.outcome, one.detail) for one in said] == [("confirmed", None)]
    rabbit.wait_for(queue, 1)
    assert [one.body for one in captured(rabbit, queue)] == [b"letter"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_reaches_each_kind_of_target(rabbit: Rabbit, kind: str) -> None:
    arrives(rabbit, kind, by_0_9_1(rabbit))


@on_rabbitmq_4
@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_of_amqp_1_0_reaches_each_kind_of_target(rabbit: Rabbit, kind: str) -> None:
    arrives(rabbit, kind, by_1_0(rabbit))


@on_rabbitmq_4
def test_a_letter_of_amqp_1_0_keeps_the_keys_that_it_came_with(rabbit: Rabbit) -> None:
    channel, dead = rabbit.channel, rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead, x_message_ttl=1)
    channel.exchange_declare("shop", "topic")
    channel.queue_bind(work, "shop", "order.#")
    send_by_1_0(rabbit, "/exchanges/shop/order.new", annotations={symbol("x-cc"): ["copy"]})
    rabbit.wait_for(dead, 1)
    [died] = captured(rabbit, dead)
    target = to_queue(rabbit.queue())
    request = SendRequest(new_plan(), 10, private=[target])
    publisher = RabbitConnector(rabbit.broker()).publisher(request)
    assert [one.outcome for one in publisher.publish(iter([letter(1, target, died)]))] == ["confirmed"]
    publisher.close()
    [again] = captured(rabbit, target.name)
    assert (again.routing_key, "copy" in again.headers["x-cc"]) == ("order.new", True)
    assert again.exchange == exchange_to(request.plan, target.name)
