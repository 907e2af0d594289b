"""How many letters an outage brings twice: the network is gone for a while in the middle of a replay.

    python bench/outages.py [kafka|rocketmq|rabbitmq|rabbitmq-witness|rabbitmq-1.0|rabbitmq-1.0-witness
        |rabbitmq-quorum|rabbitmq-quorum-witness|rabbitmq-3.10|rabbitmq-3.10-quorum-witness ...] [SECONDS]

It takes root, for a network of its own. The publisher gives up long before the network is back; then what is
in doubt is looked for at once, what was not sent goes again, and what kernels still hold has a while to come.
Of what the connector does not know, that was sent which lay in the target just before the network was back: so
an operator would decide. RabbitMQ gets its letters by AMQP 0-9-1 or 1.0, with a witness or without, into a
classic or a quorum queue of version 4, or of 3.10 as Debian has it.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pika
from proton import Message
from support.archives import letter
from support.brokers.kafka.broker import Kafka
from support.brokers.kafka.driver import Driver as KafkaDriver
from support.brokers.kafka.fixtures import connector_of as kafka_connector
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rabbitmq.install import install
from support.brokers.rabbitmq.letters import replay_ids, to_queue, wait_until_the_node_is_no_newcomer
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver as RocketDriver
from support.brokers.rocketmq.fixtures import connector_of as rocket_connector
from support.sending_contract import new_plan, provenance, said
from support.servers.outage import Outage

from dlq.connectors.amqp10.codec.message import split
from dlq.connectors.base import Outgoing, Presence, Search, SendRequest, Target
from dlq.connectors.kafka.records.raw import RawRecord, encode
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.clock import now

LETTERS = 4000
BODY = b"x" * 1000
LATE_SECONDS = 75.0
"""A kernel tries again for about a minute after such an outage."""
UNSENT_SECONDS = 10.0
"""What an apply with a ledger on a server gives its kernel by default; by a ledger of its own host it is a
minute, and a connection that nobody cuts outlives such an outage."""
TARGET = Target("topic", "orders")


class Place(NamedTuple):
    """A connector, host:port of all servers, the replay ids that have arrived, and a letter's block."""

    connector: Any
    servers: Sequence[str]
    arrived: Callable[[], list[str]]
    block: bytes | None = None
    target: Target = TARGET
    witness: bool = False


@contextmanager
def of_kafka() -> Iterator[Place]:
    """A topic of three partitions."""
    with Kafka() as node:
        driver = KafkaDriver(node.bootstrap)
        driver.create_topic(TARGET.name, partitions=3)

        def arrived() -> list[str]:
            found = [m for n in range(3) for m in driver.records(TARGET.name, partition=n)]
            return [dict(m.headers() or ())["dlq_replay_id"].decode() for m in found]

        block = encode(RawRecord(None, ()))
        yield Place(kafka_connector(node, timeout="5s"), [node.bootstrap], arrived, block)


@contextmanager
def of_rocketmq() -> Iterator[Place]:
    """A topic of one queue."""
    with RocketMQ("5.5.0") as cluster:
        driver = RocketDriver(cluster.addresses["broker-a"])
        driver.create_topic(TARGET.name)

        def arrived() -> list[str]:
            return [parse_properties(m.properties)["dlq_replay_id"] for m in driver.messages(TARGET.name)]

        servers = [*cluster.addresses.values(), cluster.name_server]
        yield Place(rocket_connector(cluster, timeout="5s"), servers, arrived)


@contextmanager
def of_rabbitmq(
    block: bytes, witness: bool, queue_type: str = "classic", is_old: bool = False
) -> Iterator[Place]:
    """A queue, and letters of the protocol that the block is of."""
    with Node(None if is_old else install()) as node:
        url = f"{node.url}?heartbeat=0"  # the channel that counts has nothing to say meanwhile
        rabbit = Rabbit(url, "/", node, pika.BlockingConnection(pika.URLParameters(url)).channel())
        queue = rabbit.queue(queue_type)
        wait_until_the_node_is_no_newcomer(rabbit)
        yield Place(
            RabbitConnector(rabbit.broker(timeout="5s")),
            [f"127.0.0.1:{port}" for port in (node.port, node.http_port)],
            lambda: replay_ids(rabbit, queue),
            block,
            to_queue(queue),
            witness,
        )


BY_0_9_1 = b"".join(pika.BasicProperties(message_id="m", delivery_mode=2).encode())
BY_1_0, _, _ = split(Message(body=BODY, inferred=True, durable=True).encode())
KINDS = {
    "kafka": of_kafka,
    "rocketmq": of_rocketmq,
    "rabbitmq": partial(of_rabbitmq, BY_0_9_1, witness=False),
    "rabbitmq-witness": partial(of_rabbitmq, BY_0_9_1, witness=True),
    "rabbitmq-1.0": partial(of_rabbitmq, BY_1_0, witness=False),
    "rabbitmq-1.0-witness": partial(of_rabbitmq, BY_1_0, witness=True),
    "rabbitmq-quorum": partial(of_rabbitmq, BY_0_9_1, witness=False, queue_type="quorum"),
    "rabbitmq-quorum-witness": partial(of_rabbitmq, BY_0_9_1, witness=True, queue_type="quorum"),
    "rabbitmq-3.10": partial(of_rabbitmq, BY_0_9_1, witness=False, is_old=True),
    "rabbitmq-3.10-quorum-witness": partial(
        of_rabbitmq, BY_0_9_1, witness=True, queue_type="quorum", is_old=True
    ),
}


def measure(kind: str, place: Place, seconds: float) -> Counter[int]:
    """How often letters arrived -> how many did."""
    plan, broker_kind = new_plan(), kind.partition("-")[0]
    common = {"broker_kind": broker_kind, "body": BODY, "body_size": len(BODY), "raw_properties": place.block}
    letters = [Outgoing(n, letter(n, **common), place.target, provenance(n, plan)) for n in range(LETTERS)]
    before, since = place.connector.bounds([place.target]), now()
    with Outage(place.servers) as network:
        sending = partial(interrupted, place, plan, letters, network, seconds)
        answers, error = network.inside(sending)
        seen = set(place.arrived())
        network.end()
        found = place.connector.find(Search(plan, letters, since, before)).shown
        publisher = place.connector.publisher(SendRequest(plan, 1000, place.witness))
        again, _ = said(publisher, iter([one for one in letters if is_unsent(one, found, seen)]))
        publisher.close()
        time.sleep(LATE_SECONDS)
    for what, counts in (
        ("sent", Counter(one.outcome for one in answers)),
        ("found", Counter(found.values())),
        ("sent again", Counter(one.outcome for one in again)),
    ):
        print(f"{kind}: {what}: {dict(counts)}")
    print(f"{kind}: ended by {error}")
    times = Counter(place.arrived())
    return Counter(times[one.provenance["dlq_replay_id"]] for one in letters)


def is_unsent(one: Outgoing, found: Mapping[int, Presence], seen: Set[str]) -> bool:
    """By the connector, else by the look at the target."""
    presence = found[one.number]
    return presence == "not_sent" or (presence == "unknown" and one.provenance["dlq_replay_id"] not in seen)


def interrupted(
    place: Place, plan: str, letters: list[Outgoing], network: Outage, seconds: float
) -> tuple[list[Any], Exception | None]:
    """Send, and lose the network in the middle, for so long."""
    began = 0.0

    def given() -> Iterator[Outgoing]:
        nonlocal began
        for one in letters:
            if one.number == LETTERS // 2:
                network.begin()
                began = time.monotonic()
            yield one

    publisher = place.connector.publisher(SendRequest(plan, LETTERS, place.witness, UNSENT_SECONDS))
    result = said(publisher, given())
    publisher.close()
    print(f"given up after {time.monotonic() - began:.1f} s")
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return result


def main(words: list[str]) -> None:
    """The command line that the module's docstring shows."""
    kinds = [word for word in words if word in KINDS] or [*KINDS]
    seconds = next((float(word) for word in words if word not in KINDS), 28.0)
    for kind in kinds:
        with KINDS[kind]() as place:
            times = measure(kind, place, seconds)
        print(f"{kind}: an outage of {seconds:g} s brought {times[2]} of {LETTERS} letters twice: {times}")


if __name__ == "__main__":
    main(sys.argv[1:])
