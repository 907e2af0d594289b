"""RocketMQ brokers that cannot keep up, and say so instead of storing."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from unittest.mock import patch

import pytest
from support.archives import letter
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver
from support.brokers.rocketmq.fixtures import connector_of, on_newest_version
from support.brokers.rocketmq.sending import outgoing
from support.waiting import eventually

from dlq.connectors.base import SendRequest, Target
from dlq.connectors.rocketmq.link.message import parse_properties

pytestmark = [pytest.mark.rocketmq, on_newest_version]


@contextmanager
def stuttering(pid: int) -> Iterator[None]:
    """Stand still again and again, so that requests have waited for long when the process looks at them."""
    over = Event()

    def stop_and_go() -> None:
        while not over.wait(0.02):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.03)
            os.kill(pid, signal.SIGCONT)

    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(stop_and_go)
        try:
            yield
        finally:
            over.set()
            stopping.result()


def test_a_broker_that_is_too_busy_again_and_again_gets_every_letter_once(rocket_version: str) -> None:
    slow = {"sendMessageThreadPoolNums": 1, "waitTimeMillsInSendQueue": 1}
    with RocketMQ(rocket_version, **slow) as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        driver.create_topic("orders")
        connector = connector_of(cluster)
        body = os.urandom(70_000)  # too large to go with others
        count = 1000
        records = [
            letter(i, broker_kind="rocketmq", properties={"n": str(i)}, body=body) for i in range(count)
        ]
        letters = iter(outgoing(records, Target("topic", "orders")))
        eventually(lambda: connector.consumers([Target("topic", "orders")]) == {})
        publisher = connector.publisher(SendRequest("plan", 2000))
        to_see_it_busy = patch.object(publisher, "_send_again", wraps=publisher._send_again)
        with to_see_it_busy as again, stuttering(cluster.pid("broker-a")):
            outcomes = {sent.number: sent.outcome for sent in publisher.publish(letters)}
        publisher.close()
        assert again.called
        assert outcomes == dict.fromkeys(range(count), "confirmed")
        stored = [int(parse_properties(m.properties)["n"]) for m in driver.messages("orders")]
        assert sorted(stored) == list(range(count))
        connector.close()
