"""Teams with a broker of each kind: their letters die in a consumer that fails, until it is mended.

What a consumer was given is counted here, beside `dlq`, by the clients of the tests.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from proton import Timeout
from support.brokers.activemq.amqp import connected
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.driver import Driver as KafkaDriver
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rocketmq.driver import Driver as RocketDriver
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.waiting import PATIENCE

from dlq.connectors.activemq.stomp.codec import headers_of
from dlq.connectors.activemq.stomp.read import ack_id
from dlq.connectors.rocketmq.link.message import parse_properties

_REPLAY = "dlq_replay_id"
_NAP = 0.1


class Delivery(NamedTuple):
    """A message in the hands of a consumer."""

    replay_id: str | None
    """None: it was never replayed."""
    body: bytes
    done: Callable[[], object]
    fail: Callable[[], object]
    """It goes to the dead letters."""


Take = Callable[[], Sequence[Delivery]]
"""What came within a moment."""


@dataclass(frozen=True)
class Team:
    """What somebody has who uses one kind of broker."""

    broker: str
    """Its table of the configuration, and of one source, named letters."""
    produce: Callable[[Iterable[int]], object]
    """Messages of these orders."""
    consuming: Callable[[], AbstractContextManager[Take]]
    pids: Sequence[int]
    """Of the broker."""


class Consumer(threading.Thread):
    """Fails with all that it is given but the first of the replayed ones, until it is mended."""

    def __init__(self, team: Team) -> None:
        super().__init__(daemon=True)
        self._team, self._over = team, threading.Event()
        self.fresh, self.failed, self.done = 0, list[str](), list[str]()
        """Messages that were never replayed, and the replay ids of others, each time they were given."""
        self.mended = False

    @property
    def replayed(self) -> list[str]:
        """The replay ids of all that was given."""
        return [*self.failed, *self.done]

    def run(self) -> None:
        with self._team.consuming() as take:
            while not self._over.is_set():
                for one in take():
                    self._work(one)

    def _work(self, one: Delivery) -> None:
        heals = self.mended or (one.replay_id is not None and not self.replayed)
        (one.done if heals else one.fail)()
        if one.replay_id is None:
            self.fresh += 1
        else:
            (self.done if heals else self.failed).append(one.replay_id)

    def end(self) -> None:
        """Returns when it has left the broker."""
        self._over.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def order(number: int) -> bytes:
    """The body of a message."""
    return b'{"order": %d}' % number


def table(kind: str, url: str, source: str, **more: str | None) -> str:
    """The tables of a broker and its source."""
    told = "".join(f"{name} = {value}\n" for name, value in more.items() if value)
    return f'[brokers.b]\nkind = "{kind}"\nurl = "{url}"\n{told}[sources.letters]\nbroker = "b"\n{source}\n'


def rabbitmq_team(rabbit: Rabbit) -> Team:
    """A queue whose rejected messages go to another."""
    dead = rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    settings = rabbit.broker()

    @contextmanager
    def consuming() -> Iterator[Take]:
        channel = rabbit.connect()
        channel.basic_qos(prefetch_count=1)
        deliveries = channel.consume(work, inactivity_timeout=_NAP)

        def take() -> list[Delivery]:
            method, properties, body = next(deliveries)
            if method is None:
                return []
            tag = method.delivery_tag
            return [
                Delivery(
                    (properties.headers or {}).get(_REPLAY),
                    body,
                    lambda: channel.basic_ack(tag),
                    lambda: channel.basic_reject(tag, requeue=False),
                )
            ]

        yield take
        channel.connection.close()

    return Team(
        table(
            "rabbitmq", settings.url, f'queue = "{dead}"\nmode = "drain"',
            password_env=f'"{settings.password_env}"', management_url=f'"{settings.management_url}"',
            witness="true",
        ),
        lambda numbers: rabbit.publish(work, [*map(order, numbers)]),
        consuming,
        [*rabbit.node._own()],
    )  # fmt: skip


def activemq_team(place: Place) -> Team:
    """A queue of Classic with dead letters of its own."""
    work, settings = f"indiv.{place.queue}", place.settings

    @contextmanager
    def consuming() -> Iterator[Take]:
        link = place.link()
        given = {"destination": f"/queue/{work}", "id": link.token, "ack": "client-individual"}
        link.request("SUBSCRIBE", given)

        def answer(command: bytes, head: bytes) -> None:
            link.send(b"%b\nid:%b\n\n\0" % (command, ack_id(head)))

        def take() -> list[Delivery]:
            return [
                Delivery(
                    headers_of(frame.head).get(_REPLAY),
                    frame.body,
                    lambda head=frame.head: answer(b"ACK", head),
                    lambda head=frame.head: answer(b"NACK", head),
                )
                for frame in link.receive(_NAP)
            ]

        yield take
        link.close()

    assert place.broker.process
    return Team(
        table(
            "activemq", settings.url, f'queue = "DLQ.{work}"\nmode = "drain"',
            jolokia_url=f'"{settings.jolokia_url}"',
        ),
        lambda numbers: place.send(*map(order, numbers), queue=work),
        consuming,
        [place.broker.process.pid],
    )  # fmt: skip


def artemis_team(place: Place) -> Team:
    """A queue of Artemis, whose dead letters lie with those of others: what is there is taken out."""
    settings = place.settings
    place.drain("DLQ")

    @contextmanager
    def consuming() -> Iterator[Take]:
        with connected(place) as connection:
            receiver = connection.create_receiver(place.queue, credit=100)

            def take() -> list[Delivery]:
                try:
                    message = receiver.receive(timeout=_NAP)
                except Timeout:
                    return []
                replay_id = (message.properties or {}).get(_REPLAY)
                return [Delivery(replay_id, bytes(message.body), receiver.accept, receiver.reject)]

            yield take

    assert place.broker.process
    return Team(
        table(
            "activemq", settings.url, 'queue = "DLQ"\nmode = "drain"',
            password_env=f'"{settings.password_env}"',
        ),
        lambda numbers: place.send(*map(order, numbers)),
        consuming,
        [place.broker.process.pid],
    )  # fmt: skip


def rocketmq_team(rocket: Rocket) -> Team:
    """A group that reads a topic and its retries."""
    topics = (rocket.topic, f"%RETRY%{rocket.group}")
    rocket.driver.read_retries(rocket.group)

    @contextmanager
    def consuming() -> Iterator[Take]:
        driver, next_at = RocketDriver(rocket.cluster.addresses["broker-a"]), dict.fromkeys(topics, 0)

        def take() -> list[Delivery]:
            found = []
            driver.consume(rocket.group, rocket.topic)  # who has not said so for 120 s loses the connection
            for topic in topics:
                for message in driver.messages(topic, start=next_at[topic]):
                    next_at[topic] = at = message.queue_offset + 1

                    def commit(topic: str = topic, at: int = at) -> None:
                        driver.commit_offset(rocket.group, topic, at)

                    def fail(message=message, commit=commit) -> None:  # type: ignore[no-untyped-def]
                        driver.send_back(message, rocket.group)
                        commit()

                    replay_id = parse_properties(message.properties).get(_REPLAY)
                    found.append(Delivery(replay_id, message.body, commit, fail))
            threading.Event().wait(0 if found else _NAP)
            return found

        yield take
        driver.close()

    def produce(numbers: Iterable[int]) -> None:
        for number in numbers:
            rocket.driver.send(rocket.topic, order(number), {"UNIQ_KEY": unique_key()})

    where = table("rocketmq", rocket.cluster.url, f'group = "{rocket.group}"')
    return Team(where, produce, consuming, [rocket.cluster.pid()])


def kafka_team(kafka: KafkaPlace) -> Team:
    """A group whose framework writes what fails to a topic of dead letters."""
    for topic in (kafka.topic, kafka.dead):
        kafka.driver.create_topic(topic)

    @contextmanager
    def consuming() -> Iterator[Take]:
        driver = KafkaDriver(kafka.node.bootstrap)
        settings = {"group.id": kafka.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = KafkaConsumer({**driver.settings, **settings})
        consumer.subscribe([kafka.topic])

        def take() -> list[Delivery]:
            message = consumer.poll(_NAP)
            if message is None or message.error():
                return []
            headers = [(name, value) for name, value in message.headers() or () if "kafka_dlt" not in name]
            told = [("kafka_dlt-original-topic", kafka.topic.encode())]
            told += [("kafka_dlt-exception-fqcn", b"com.shop.Boom")]

            def commit() -> None:
                consumer.commit(message, asynchronous=False)

            def fail() -> None:
                driver.send(kafka.dead, message.value(), message.key(), [*headers, *told])
                commit()

            replay_id = dict(headers).get(_REPLAY)
            return [Delivery(replay_id.decode() if replay_id else None, message.value(), commit, fail)]

        yield take
        consumer.close()

    return Team(
        table("kafka", kafka.node.url, f'topic = "{kafka.dead}"'),
        lambda numbers: kafka.driver.send_all(kafka.topic, [(order(n), None, ()) for n in numbers]),
        consuming,
        [kafka.node.pid],
    )
