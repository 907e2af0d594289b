"""Versions of entities go back in order to a consumer that fails on a third of the first ones again, on each
broker that tells what is consumed."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.brokers.activemq.broker import ARTEMIS, CLASSIC
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit

from dlq.cli.context import Context
from dlq.operations.desk import Notes, open_desk
from dlq.operations.in_order import apply_in_order
from dlq.operations.plans import PlanWanted, make_plan
from dlq.operations.pulling import PullWanted, pull_sources
from dlq.replay.plan import Wanted

KEYS = "abcdefghij"
TEXTS = [f"{key}{number}" for number in (1, 2) for key in KEYS]
FAILS = {"a1", "b1", "c1"}
Takes = Callable[[Callable[[str], bool], threading.Event], None]
"""(what a message means for the consumer, whether it ends): consumes, and lets die what fails."""


def replay(folder: Path, config: str, takes: Takes, to: str = "failed") -> list[str]:
    """What the consumer got, in order; `config` has a broker and the source `orders`."""
    (folder / "dlq.toml").write_text(
        f'archive = "{folder}/archive"\n{config}[analysis]\nafter_pull = false\n'
    )
    desk, seen, over = open_desk(Context(str(folder / "dlq.toml")).settings, Notes()), [], threading.Event()
    assert pull_sources(desk, PullWanted(mode="drain")).rows[0]["captured"] == len(TEXTS)
    plan = make_plan(desk, PlanWanted(how=Wanted(any_advice=True, to=to, in_order="consumed"))).header.plan

    def consume(text: str) -> bool:
        seen.append(text)
        return text not in FAILS

    consumer = threading.Thread(target=takes, args=(consume, over))
    consumer.start()
    try:
        done = apply_in_order(desk, plan).document
    finally:
        over.set()
        consumer.join()
    assert sorted(one["key"] for one in done["stopped_keys"]) == ["a", "b", "c"], done
    assert done["states"]["planned"] == len(FAILS)
    return seen


def check(seen: list[str]) -> None:
    """Each once, but for those behind one that failed, and none before its elder."""
    assert sorted(seen) == sorted({*TEXTS} - {"a2", "b2", "c2"})
    assert [text for text in seen if text[1] == "2" and f"{text[0]}1" not in seen[: seen.index(text)]] == []


def of_broker(kind: str, settings: Any, *names: str) -> str:
    lines = (f'{name} = "{value}"\n' for name in names if (value := getattr(settings, name)))
    return f'[brokers.shop]\nkind = "{kind}"\n{"".join(lines)}'


def test_rabbitmq(rabbit: Rabbit, tmp_path: Path) -> None:
    dead = rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    for text in TEXTS:
        rabbit.publish(work, [text.encode()], headers={"order": text[0]})
    rabbit.reject(work, len(TEXTS))
    rabbit.wait_for(dead, len(TEXTS))
    rabbit.wait_for_statistics(work)

    def takes(consume: Callable[[str], bool], over: threading.Event) -> None:
        channel = rabbit.connect()
        for method, _, body in channel.consume(work, inactivity_timeout=0.1):
            if over.is_set():
                break
            if method and consume(body.decode()):
                channel.basic_ack(method.delivery_tag)
            elif method:
                channel.basic_nack(method.delivery_tag, requeue=False)
        channel.connection.close()

    broker = of_broker("rabbitmq", rabbit.broker(), "url", "password_env", "management_url")
    source = f'[sources.orders]\nbroker = "shop"\nqueue = "{dead}"\nmode = "drain"\nkey = "header:order"\n'
    check(replay(tmp_path, broker + source, takes))


@pytest.mark.activemq
@pytest.mark.parametrize("stomp_broker", [CLASSIC[-1], ARTEMIS], indirect=True)
def test_activemq(stomp: Place, tmp_path: Path) -> None:
    work = f"{stomp.queue}.work"
    stomp.send(b"so that the queue is there", queue=work)
    stomp.drain(work)
    for text in TEXTS:
        stomp.send(text.encode(), JMSXGroupID=text[0])

    def takes(consume: Callable[[str], bool], over: threading.Event) -> None:
        while not over.wait(0.2):
            reading = stomp.connector.read(stomp.request("drain", work))
            for batch in reading.batches():
                for record in batch.records:
                    if not consume(record.body.decode()):
                        kept = {name: text for name, text in record.headers.items() if "dlq_replay" in name}
                        stomp.send(record.body, **kept)
                reading.acknowledge(batch.position)
            reading.close()

    broker = of_broker("activemq", stomp.settings, "url", "password_env", "jolokia_url")
    if stomp.settings.jolokia_url:
        broker += "jolokia_details = true\n"  # which shows groups
    source = f'[sources.orders]\nbroker = "shop"\nqueue = "{stomp.queue}"\nmode = "drain"\n'
    check(replay(tmp_path, broker + source, takes, f"queue:{work}"))


@pytest.mark.kafka
def test_kafka(kafka: KafkaPlace, tmp_path: Path) -> None:
    for topic in (kafka.topic, kafka.dead):
        kafka.driver.create_topic(topic)
    died = [("kafka_dlt-original-topic", kafka.topic.encode())]
    kafka.driver.send_all(kafka.dead, [(text.encode(), text[:1].encode(), died) for text in TEXTS])
    kafka.driver.commit(kafka.group, kafka.topic, 0)

    def takes(consume: Callable[[str], bool], over: threading.Event) -> None:
        group = {"group.id": kafka.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**kafka.driver.settings, **group})
        consumer.subscribe([kafka.topic])
        while not over.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                if not consume(message.value().decode()):
                    headers = [*message.headers(), *died]
                    kafka.driver.send_all(kafka.dead, [(message.value(), message.key(), headers)])
                consumer.commit(message, asynchronous=False)
        consumer.close()

    broker = f'[brokers.shop]\nkind = "kafka"\nurl = "{kafka.node.url}"\n'
    source = f'[sources.orders]\nbroker = "shop"\ntopic = "{kafka.dead}"\nmode = "drain"\n'
    check(replay(tmp_path, broker + source, takes))
