"""Letters for a publisher of RabbitMQ, and what a broker holds of them afterwards."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import pika
from services.rabbitmq_fixtures import Rabbit

from dlq.connectors.base import Outgoing, Sent, Target
from dlq.connectors.rabbitmq_management import Management
from dlq.connectors.rabbitmq_publishing import RabbitPublisher
from dlq.core.errors import ConnectionLost, NotFound
from dlq.core.record import Record

HEADERS = {"tenant": 42, "x-death": [{"reason": "rejected", "queue": "orders", "count": 1}]}
_plans = count(1)


def new_plan() -> str:
    return f"plan-{time.time_ns()}-{next(_plans)}"


def record(body: bytes = b"letter", **properties: object) -> Record:
    block = b"".join(pika.BasicProperties(**{"headers": HEADERS, "message_id": "m", **properties}).encode())
    return Record("r", "s", "b", "rabbitmq", "dlq", raw_properties=block, body=body, body_size=len(body))


def letter(number: int, target: Target, what: Record | None = None) -> Outgoing:
    provenance = {"dlq_replay_id": f"id-{number}", "dlq_replay_lap": "1", "dlq_replay_of": f"record-{number}"}
    return Outgoing(number, what or record(), target, provenance)


def to_queue(name: str) -> Target:
    return Target("queue", name)


def publish(rabbit: Rabbit, letters: Sequence[Outgoing], window: int = 1000) -> dict[int, Sent]:
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), window)
    try:
        sent = list(publisher.publish(iter(letters)))
    finally:
        publisher.close()
    assert sorted(answer.number for answer in sent) == sorted(given.number for given in letters)
    return {answer.number: answer for answer in sent}


def until_it_ends(
    publisher: RabbitPublisher, letters: Iterator[Outgoing]
) -> tuple[list[Sent], Exception | None]:
    """All answers, and what `publish` raised at the end."""
    sent: list[Sent] = []
    try:
        for answer in publisher.publish(letters):
            sent.append(answer)
    except (ConnectionLost, NotFound) as error:
        return sent, error
    finally:
        publisher.close()
    return sent, None


def replay_ids(rabbit: Rabbit, queue: str) -> list[str]:
    """Of all messages in a queue; they stay there."""
    number = settled_depth(rabbit, queue)
    channel = rabbit.channel.connection.channel()
    channel.basic_qos(prefetch_count=65_535)
    found: list[str] = []
    channel.basic_consume(
        queue, lambda _channel, _method, properties, _body: found.append(properties.headers["dlq_replay_id"])
    )
    wait_until(lambda: channel.connection.process_data_events(0.1) or len(found) >= number)
    channel.close()
    rabbit.wait_for(queue, number)
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def settled_depth(rabbit: Rabbit, queue: str) -> int:
    before = -1
    while before != (depth := rabbit.depth(queue)):
        before = depth
        time.sleep(0.3)
    return depth


def wait_until_the_node_is_no_newcomer(rabbit: Rabbit) -> None:
    """A witness proves nothing of a node that started in the five seconds before the first send, and what
    the management says of its age is up to five seconds old."""
    management = Management(rabbit.broker())
    while min(node.get("uptime", 0) for node in management.get("nodes")) < 12_000:
        time.sleep(0.5)
    management.close()
