"""Letters for a publisher of RabbitMQ, and what a broker holds of them afterwards."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
from support.brokers.rabbitmq.fixtures import Rabbit
from support.sending_contract import Cut, until_it_ends
from support.servers.cutter import Cutter
from support.waiting import PATIENCE, eventually, settled

from dlq.connectors.base import Outgoing, SendRequest, Sent, Target
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.record import Record
from dlq.core.runtime import patience

HEADERS = {"tenant": 42, "x-death": [{"reason": "rejected", "queue": "orders", "count": 1}]}
_LAST = "the last message"
_plans = count(1)


def new_plan() -> str:
    return f"plan-{time.time_ns()}-{next(_plans)}"


@contextmanager
def cutting(rabbit: Rabbit) -> Iterator[tuple[RabbitConnector, Cut]]:
    """A connector whose broker's answers can be made to get lost."""
    url = urlsplit(rabbit.url)
    with Cutter(f"{url.hostname}:{url.port}") as cutter:
        broker = rabbit.broker(url=f"amqp://{url.username}@{cutter.address}{url.path}")
        yield RabbitConnector(broker), lambda _given: cutter.loses_answers.set()


def record(body: bytes = b"letter", **properties: object) -> Record:
    block = b"".join(pika.BasicProperties(**{"headers": HEADERS, "message_id": "m", **properties}).encode())
    return Record("r", "s", "b", "rabbitmq", "dlq", raw_properties=block, body=body, body_size=len(body))


def letter(number: int, target: Target, what: Record | None = None) -> Outgoing:
    provenance = {"dlq_replay_id": f"id-{number}", "dlq_replay_lap": "1", "dlq_replay_of": f"record-{number}"}
    return Outgoing(number, what or record(), target, provenance)


def to_queue(name: str) -> Target:
    return Target("queue", name)


def sent(
    broker: RabbitBroker, letters: Iterable[Outgoing], window: int = 100, **more: Any
) -> tuple[dict[int, Sent], Exception | None]:
    """The answer to each letter, of which none is given twice, and what ended it."""
    wanted = SendRequest(**{"plan": new_plan(), "window": window, **more})
    answers, error = until_it_ends(RabbitConnector(broker).publisher(wanted), iter(letters))
    told = {answer.number: answer for answer in answers}
    assert len(told) == len(answers)
    return told, error


def publish(broker: RabbitBroker, letters: Sequence[Outgoing], **more: Any) -> dict[int, Sent]:
    """The answer to each letter."""
    answers, error = sent(broker, letters, **more)
    assert error is None
    assert {*answers} == {given.number for given in letters}
    return answers


def outcomes(answers: Mapping[int, Sent]) -> dict[int, str]:
    return {number: answer.outcome for number, answer in answers.items()}


def leaves_out(broker: RabbitBroker, offending: Target, good: Target, what: Record | None = None) -> None:
    """A target that takes nothing is named and left out, and the rest of 60 letters goes."""
    letters = [letter(n, offending if n % 3 == 1 else good, what) for n in range(60)]
    answers = publish(broker, letters)
    assert "exchange" in str(answers[1].detail)
    expected = {n: "unsent" if n % 3 == 1 else "confirmed" for n in range(60)}
    assert outcomes(answers) == {**expected, 1: "refused"}


def headers_of_all(rabbit: Rabbit, queue: str, take: bool = False) -> list[dict[str, Any]]:
    """Of all messages in a queue, in order; they stay there unless they are taken.

    A last message of our own ends them: a quorum queue that is busy or has no leader says that it is empty
    (`rabbit_quorum_queue:stat` waits for 250 ms), and hands out 2,000 when no prefetch is named.
    """
    channel = rabbit.connect()
    channel.basic_qos(prefetch_count=65_535)
    channel.basic_publish("", queue, b"", pika.BasicProperties(type=_LAST), mandatory=True)
    found = []
    for method, properties, _ in channel.consume(queue, inactivity_timeout=PATIENCE):
        assert method, f"{len(found)} messages of {queue} came, and then no more"
        if properties.type == _LAST:
            channel.basic_ack(method.delivery_tag)
            break
        found.append(properties.headers)
    if take:
        channel.basic_ack(0, multiple=True)
    channel.connection.close()
    rabbit.wait_for(queue, 0 if take else len(found))
    return found


def replay_ids(rabbit: Rabbit, queue: str) -> list[str]:
    """Of all replays in a queue; they stay there."""
    return [found["dlq_replay_id"] for found in headers_of_all(rabbit, queue) if "dlq_witness" not in found]


def settled_depth(rabbit: Rabbit, queue: str) -> int:
    return settled(lambda: rabbit.depth(queue))


def goes_while_somebody_waits(holder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel's connection ends, and gives back what it holds, when the program first waits."""
    wait = time.sleep

    def end_and_wait(seconds: float) -> None:
        if holder.is_open:
            holder.connection.close()
        wait(seconds)

    monkeypatch.setattr(patience.time, "sleep", end_and_wait)


def wait_until_the_node_is_no_newcomer(rabbit: Rabbit, age: int = 12_000) -> None:
    """A witness proves nothing of a node that started in the five seconds before the first send, and what
    the management says of its age is up to five seconds old, and at first it says nothing: for that alone
    waits who names the age 0."""
    management = Management(rabbit.broker())

    def is_old() -> bool:
        try:
            return min(node.get("uptime", -1) for node in management.get_all("nodes")) >= age
        except ManagementError:
            return False

    eventually(is_old)
    management.close()


def to_process(rabbit: Rabbit, queue: str, do: str) -> None:
    """Do something to the process of a queue. Where that of a classic one is killed, another one begins with
    what lies on the disk."""
    vhost, name = (f"unicode:characters_to_binary({[*map(ord, text)]})" for text in (rabbit.vhost, queue))
    found = f"{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r({vhost}, queue, {name}))"
    rabbit.node.evaluate(f"{found}, Pid = amqqueue:get_pid(Q), {do}")
