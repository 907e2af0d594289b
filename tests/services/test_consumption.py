"""Whether letters are consumed, as real brokers tell it."""

import pytest
from support.brokers.activemq.fixtures import Place, on_all
from support.brokers.activemq.fixtures import settings_of as activemq_settings
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import eventually

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Consumption, Target


@on_private_nodes
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_rabbitmq_tells_what_waits_at_once_and_what_is_acknowledged_soon(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    rabbit.channel.exchange_declare("shop", "direct")
    rabbit.channel.queue_bind(queue, "shop", "orders")
    rabbit.publish(queue, [b"x"] * 5)
    rabbit.wait_for(queue, 5)
    rabbit.wait_for_statistics(queue)
    to_queue, to_exchange = Target("queue", queue), Target("exchange", "shop", "orders")
    connector = rabbit.connector()

    def seen() -> tuple[int, int | None]:
        [one] = connector.consumption([to_queue])[to_queue]
        return one.waiting, one.acknowledged

    assert eventually(lambda: seen() == (5, 0))
    assert connector.consumption([to_queue])[to_queue][0].consumers == 0
    channel = rabbit.connect()
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(5)]
    assert seen() == (0, 0)
    channel.basic_ack(tags[2], multiple=True)
    assert eventually(lambda: seen() == (0, 3))
    channel.connection.close()
    assert eventually(lambda: seen() == (2, 3))
    assert connector.consumption([to_exchange])[to_exchange][0].receiver == queue


def test_rabbitmq_tells_which_targets_are_missing(rabbit: Rabbit) -> None:
    rabbit.channel.exchange_declare("shop", "direct")
    exchanges = [Target("exchange", "shop", "x"), Target("exchange", "amq.topic")]
    there = [Target("queue", rabbit.queue()), *exchanges]
    typos = [Target("queue", "ordres"), Target("exchange", "shpo", "x")]
    connector = rabbit.connector(management_url=None)
    missing = connector.missing_targets([*there, *typos])
    assert missing == dict(zip(typos, ["there is no queue ordres", "there is no exchange shpo"], strict=True))


def test_rabbitmq_without_management_counts_no_acknowledgements(rabbit: Rabbit) -> None:
    queue, other = Target("queue", rabbit.queue()), Target("exchange", "shop", "orders")
    rabbit.publish(queue.name, [b"x"])
    connector = rabbit.connector(management_url=None)
    seen = connector.consumption([queue, other, Target("queue", "not there")])
    assert seen == {queue: [Consumption(queue.name, 1, 0)]}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_rabbitmq_without_management_does_not_tell_an_empty_queue_from_one_without_a_leader(
    rabbit: Rabbit, kind: str
) -> None:
    queue = Target("queue", rabbit.queue(kind))
    connector = rabbit.connector(management_url=None)
    seen = connector.consumption([queue])
    assert seen == ({queue: [Consumption(queue.name, 0, 0)]} if kind == "classic" else {})
    consumer = rabbit.connect()
    consumer.basic_consume(queue.name, lambda *_: None)
    assert eventually(lambda: connector.consumption([queue]) == {queue: [Consumption(queue.name, 0, 1)]})


@on_all
@pytest.mark.activemq
@pytest.mark.parametrize("jolokia", [True, False])
def test_activemq_counts_what_is_not_acknowledged(stomp: Place, jolokia: bool) -> None:
    stomp.send(*[b"x"] * 5)
    queue, other = Target("queue", stomp.queue), Target("queue", f"{stomp.queue}.not.there")
    connector = ActiveMQConnector(activemq_settings(stomp.broker, jolokia))
    before = connector.consumption([queue, other, Target("topic", "prices")])
    assert connector.missing_targets([other]) == {}
    assert connector.consumers([queue, other]) == ({queue: [queue.name], other: []} if before else {})
    if connector.kind == "activemq" and not jolokia:
        assert before == {}
        return
    assert before[other] == [Consumption(other.name, 0, 0, 0)]
    eventually(lambda: connector.consumption([queue]) == {queue: [Consumption(queue.name, 5, 0, 0)]})
    stomp.drain()
    assert eventually(lambda: connector.consumption([queue]) == {queue: [Consumption(queue.name, 0, 0, 5)]})
    connector.close()


@pytest.mark.rocketmq
def test_rocketmq_tells_which_targets_are_missing(rocket: Rocket) -> None:
    rocket.driver.read_retries(rocket.group)
    there, typo, nobody = Target("topic", rocket.topic), Target("topic", "ordres"), Target("group", "nobody")
    unread, half = Target("topic", f"{rocket.topic}-unread"), Target("topic", f"{rocket.topic}-half")
    rocket.driver.create_topic(unread.name, queues=4, readable=0)
    rocket.driver.create_topic(half.name, queues=4, readable=1)
    rocket.wait_for_routes(unread.name, half.name, f"%RETRY%{rocket.group}")
    assert rocket.connector.missing_targets([half]) == {}
    missing = rocket.connector.missing_targets([there, Target("group", rocket.group), typo, nobody, unread])
    assert missing == {
        unread: f"no queue of {unread.name} may be written and read (updateTopic -p 6 -r … -w …)",
        typo: "no broker has a writable topic ordres",
        nobody: "no broker has a writable topic %RETRY%nobody",
    }


@pytest.mark.rocketmq
def test_rocketmq_tells_how_far_each_group_has_committed(rocket: Rocket) -> None:
    topic, group, nobody = Target("topic", rocket.topic), Target("group", rocket.group), Target("resume", "x")
    for _ in range(3):
        rocket.driver.send(rocket.topic, b"x")
    rocket.driver.read_retries(rocket.group)
    rocket.driver.commit_offset(rocket.group, rocket.topic, 1)

    def seen(target: Target) -> list[tuple[str, int, int | None, int | None]]:
        found = rocket.connector.consumption([target, nobody])
        assert nobody not in found
        return [(one.receiver, one.waiting, one.consumers, one.acknowledged) for one in found.get(target, ())]

    assert eventually(lambda: seen(topic) == [(f"group {rocket.group}", 2, 0, 1)])
    rocket.driver.commit_offset(rocket.group, rocket.topic, 3)
    assert eventually(lambda: seen(topic) == [(f"group {rocket.group}", 0, 0, 3)])
    assert seen(group) == [(f"group {rocket.group}", 0, 0, 0)]
