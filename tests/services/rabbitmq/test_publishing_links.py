"""The connection under a publisher: alarms and cuts leave one window in doubt at most."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes
from support.brokers.rabbitmq.letters import letter, new_plan, record, settled_depth, to_queue, until_it_ends

from dlq.connectors.base import Outgoing
from dlq.connectors.rabbitmq.publisher import RabbitPublisher

pytestmark = pytest.mark.rabbitmq


@on_private_nodes
def test_an_alarm_with_a_window_in_flight_leaves_only_that_window_in_doubt(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, blocked_seconds=1.0)

    def letters() -> Iterator[Outgoing]:
        for number in count():
            if number == 500:
                rabbit.node.limit_memory("0.00001")
            yield letter(number, to_queue(queue))

    try:
        sent, error = until_it_ends(publisher, letters())
    finally:
        rabbit.node.limit_memory()
    assert "alarm" in str(error)
    outcomes = Counter(answer.outcome for answer in sent)
    assert outcomes["confirmed"] >= 400
    assert outcomes["in_doubt"] <= 100
    depth = settled_depth(rabbit, queue)
    assert outcomes["confirmed"] <= depth <= outcomes["confirmed"] + outcomes["in_doubt"]


@on_private_nodes
def test_an_alarm_that_ends_in_time_costs_nothing(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, blocked_seconds=300.0)

    def free_memory() -> None:
        time.sleep(1.5)
        rabbit.node.limit_memory()

    def letters() -> Iterator[Outgoing]:
        for number in range(2000):
            if number == 500:
                rabbit.node.limit_memory("0.00001")
                threading.Thread(target=free_memory).start()
            yield letter(number, to_queue(queue))

    sent, error = until_it_ends(publisher, letters())
    assert (Counter(answer.outcome for answer in sent), error) == ({"confirmed": 2000}, None)
    rabbit.wait_for(queue, 2000)


@on_private_nodes
def test_letters_large_and_small_go_through_tls_in_both_directions(rabbit: Rabbit) -> None:
    queue, large = rabbit.queue(), record(b"x" * 1_000_000)
    publisher = RabbitPublisher(rabbit.by_tls(), new_plan(), 50)
    letters = [
        letter(n, to_queue("nowhere" if n % 2 else queue), large if n % 7 == 0 else None) for n in range(200)
    ]
    sent, error = until_it_ends(publisher, iter(letters))
    assert error is None
    assert Counter((answer.number % 2, answer.outcome) for answer in sent) == {
        (0, "confirmed"): 100, (1, "returned"): 100,
    }  # fmt: skip
    rabbit.wait_for(queue, 100)
