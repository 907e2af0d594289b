"""RabbitMQ keeps the way back of the contract that every connector keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit
from support.brokers.rabbitmq.letters import (
    record,
    replay_ids,
    settled_depth,
    to_queue,
    wait_until_the_node_is_no_newcomer,
)
from support.sending_contract import Cut, SendingContract, SendingPlace
from support.servers.cutter import Cutter

from dlq.connectors.base import Target
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.core.record import Record

pytestmark = pytest.mark.rabbitmq


@pytest.mark.parametrize("kind", KINDS)
class TestRabbitMQ(SendingContract):
    """The suite with a witness, into a queue of each kind on each version."""

    @pytest.fixture
    def place(self, rabbit: Rabbit, kind: str) -> SendingPlace:
        queue = rabbit.queue(kind)

        def arrived() -> list[str]:
            settled_depth(rabbit, queue)
            return replay_ids(rabbit, queue)

        def refused() -> tuple[Record, Target]:
            full = rabbit.queue(x_max_length=1, x_overflow="reject-publish")
            rabbit.publish(full, [b"first"])
            return record(), to_queue(full)

        @contextmanager
        def cutting() -> Iterator[tuple[RabbitConnector, Cut]]:
            url = urlsplit(rabbit.url)
            with Cutter(f"{url.hostname}:{url.port}") as cutter:
                broker = rabbit.broker(url=f"amqp://{url.username}@{cutter.address}{url.path}")
                yield RabbitConnector(broker), lambda _given: cutter.loses_answers.set()

        cannot = {}
        if rabbit.broker().management_url is None:
            cannot["find"] = "a witness proves nothing without management"
        elif kind == "quorum" and rabbit.version < (4,):
            cannot["find"] = "before version 4 a quorum queue may lack what its witness holds"
        return SendingPlace(
            RabbitConnector(rabbit.broker()),
            to_queue(queue),
            lambda number: record(b"letter %d" % number),
            arrived,
            nowhere=to_queue("nowhere"),
            refused=refused,
            cutting=cutting,
            witness=True,
            servers=[f"127.0.0.1:{port}" for port in (rabbit.node.port, rabbit.node.http_port)],
            before_proof=lambda: None if "find" in cannot else wait_until_the_node_is_no_newcomer(rabbit),
            cannot=cannot,
        )
