"""RabbitMQ keeps the way back of the contract that every connector keeps."""

import pytest
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit
from support.brokers.rabbitmq.letters import (
    cutting,
    record,
    replay_ids,
    settled_depth,
    to_queue,
    wait_until_the_node_is_no_newcomer,
)
from support.sending_contract import SendingContract, SendingPlace

from dlq.connectors.base import Target
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

        cannot = {}
        if rabbit.broker().management_url is None:
            cannot["find"] = "a witness proves nothing without management"
        elif kind == "quorum" and rabbit.version < (4,):
            cannot["find"] = "before version 4 a quorum queue may lack what its witness holds"
        return SendingPlace(
            rabbit.connector(),
            to_queue(queue),
            lambda number: record(b"letter %d" % number),
            arrived,
            nowhere=to_queue("nowhere"),
            refused=refused,
            cutting=lambda: cutting(rabbit),
            witness=True,
            servers=[f"127.0.0.1:{port}" for port in (rabbit.node.port, rabbit.node.http_port)],
            before_proof=lambda: None if "find" in cannot else wait_until_the_node_is_no_newcomer(rabbit),
            cannot=cannot,
        )
