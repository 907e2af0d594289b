"""Versions of entities on a real broker: how they die, how a consumer takes them when they go back, and lets
die what fails again. A message is its key and its version: `a 1`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit

from dlq.connectors.activemq.stomp.codec import encode

Consume = Callable[[str], bool]
"""The consumer's work on a message: whether it ends well."""


class Shop(NamedTuple):
    """A queue `orders` of one broker, and what died of it."""

    config: str
    """Of dlq.toml: [brokers.shop] and, at the end, [sources.orders]."""
    key: str
    """The line of a source that is to go in order; empty where the broker's own key is meant."""
    to: str
    fill: Callable[[Sequence[str]], None]
    """Let these die, in this order."""
    takes: Callable[[Consume, threading.Event], None]
    """Consume until it is over."""


def _config(kind: str, settings: Any, names: str, source: str) -> str:
    told = ((name, getattr(settings, name)) for name in names.split())
    lines = "".join(f'{name} = "{value}"\n' for name, value in told if value)
    where = f'[sources.orders]\nbroker = "shop"\n{source}\nmode = "drain"\n'
    return f'[brokers.shop]\nkind = "{kind}"\n{lines}{where}'


def of_rabbitmq(rabbit: Rabbit) -> Shop:
    """A version is the second at which it was sent."""
    dead = rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)

    def fill(texts: Sequence[str]) -> None:
        for text in texts:
            key, version = text.split()
            rabbit.publish(work, [text.encode()], headers={"order": key}, timestamp=int(version))
        rabbit.wait_for(work, len(texts))
        rabbit.reject(work, len(texts))
        rabbit.wait_for(dead, len(texts))
        rabbit.wait_for_statistics(work)

    def takes(consume: Consume, over: threading.Event) -> None:
        channel = rabbit.connect()
        channel.basic_qos(prefetch_count=500)
        for method, _, body in channel.consume(work, inactivity_timeout=0.1):
            if over.is_set():
                break
            if method and consume(body.decode()):
                channel.basic_ack(method.delivery_tag)
            elif method:
                channel.basic_nack(method.delivery_tag, requeue=False)
        channel.connection.close()

    config = _config("rabbitmq", rabbit.broker(), "url password_env management_url", f'queue = "{dead}"')
    return Shop(config, 'key = "header:order"\n', "failed", fill, takes)


def of_activemq(place: Place) -> Shop:
    """The keys are message groups; a consumer sends what fails to its dead letters itself."""
    work = f"{place.queue}.work"

    def fill(texts: Sequence[str]) -> None:
        place.send(b"so that the queue is there", queue=work)
        place.drain(work)
        send(texts, [{"JMSXGroupID": text.split()[0]} for text in texts])

    def send(texts: Sequence[str], headers: Sequence[Mapping[str, str]]) -> None:
        given = {**place.destination(), "persistent": "true"}
        told = zip(texts, headers, strict=True)
        if frames := [encode("SEND", {**given, **own}, text.encode()) for text, own in told]:
            place.send_frames(frames)

    def takes(consume: Consume, over: threading.Event) -> None:
        while not over.wait(0.2):
            reading = place.connector.read(place.request("drain", work))
            for batch in reading.batches():
                failed = [one for one in batch.records if not consume(one.body.decode())]
                marks = [{n: text for n, text in one.headers.items() if "dlq_replay" in n} for one in failed]
                send([one.body.decode() for one in failed], marks)
                reading.acknowledge(batch.position)
            reading.close()

    config = _config("activemq", place.settings, "url password_env jolokia_url", f'queue = "{place.queue}"')
    if place.settings.jolokia_url:  # which shows groups
        config = config.replace("[sources", "jolokia_details = true\n[sources")
    return Shop(config, "", f"queue:{work}", fill, takes)


def of_kafka(kafka: KafkaPlace) -> Shop:
    """The keys are Kafka's own."""
    for topic in (kafka.topic, kafka.dead):
        kafka.driver.create_topic(topic)
    kafka.driver.commit(kafka.group, kafka.topic, 0)
    died = [("kafka_dlt-original-topic", kafka.topic.encode())]

    def fill(texts: Sequence[str]) -> None:
        kafka.driver.send_all(kafka.dead, [(text.encode(), text.split()[0].encode(), died) for text in texts])

    def takes(consume: Consume, over: threading.Event) -> None:
        group = {"group.id": kafka.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer({**kafka.driver.settings, **group})
        consumer.subscribe([kafka.topic])
        while not over.is_set():
            if some := consumer.consume(500, 0.2):
                failed = [one for one in some if one.error() is None and not consume(one.value().decode())]
                again = [(one.value(), one.key(), [*one.headers(), *died]) for one in failed]
                kafka.driver.send_all(kafka.dead, again)
                consumer.commit(some[-1], asynchronous=False)
        consumer.close()

    config = f'[brokers.shop]\nkind = "kafka"\nurl = "{kafka.node.url}"\n'
    source = f'[sources.orders]\nbroker = "shop"\ntopic = "{kafka.dead}"\nmode = "drain"\n'
    return Shop(config + source, "", "failed", fill, takes)
