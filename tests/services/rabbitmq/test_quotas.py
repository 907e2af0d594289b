"""A limit of users, hosts, connections, channels or queues is one line that names it, and the remedy."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes, on_rabbitmq_4, request
from support.connector_contract import letters
from support.rows import each_row

from dlq.connectors.base import SendRequest
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import AccessDenied

_SECRET = "DLQ_TEST_LIMITED_PASSWORD"


@dataclass
class Limited:
    """A user of his own, whose limits a test sets, and a queue with a letter."""

    rabbit: Rabbit
    queue: str
    broker: RabbitBroker

    def said(self, ask: Callable[[RabbitConnector, str], object], broker: RabbitBroker | None = None) -> str:
        with pytest.raises(AccessDenied) as refused:
            ask(RabbitConnector(broker or self.broker), self.queue)
        assert "\n" not in str(refused.value)
        return str(refused.value)


@pytest.fixture
def limited(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> Limited:
    queue = rabbit.holding([b"x"])
    monkeypatch.setenv(_SECRET, "secret")
    broker = rabbit.by_user("limited", "secret", password_env=_SECRET, management_url=None)
    return Limited(rabbit, queue, broker)


def read(connector: RabbitConnector, queue: str) -> int:
    return len(letters(connector.read(request(queue))))


def inspect(connector: RabbitConnector, queue: str) -> object:
    return connector.inspect(request(queue).source)


def send(connector: RabbitConnector, _queue: str) -> None:
    connector.publisher(SendRequest("plan", 10)).close()


def send_with_a_witness(connector: RabbitConnector, _queue: str) -> None:
    connector.publisher(SendRequest("plan", 10, witness=True)).close()


@on_private_nodes
@each_row(
    ("kind", "limit"), [("user", "max-connections"), ("user", "max-channels"), ("vhost", "max-connections")]
)
def test_a_limit_of_the_user_or_the_virtual_host(limited: Limited, kind: str, limit: str) -> None:
    whose = "limited" if kind == "user" else limited.rabbit.vhost
    limited.rabbit.node.api("PUT", f"{kind}-limits", whose, limit, value=0)
    try:
        said = [limited.said(ask) for ask in (read, inspect, send, send_with_a_witness)]
    finally:
        limited.rabbit.node.api("DELETE", f"{kind}-limits", whose, limit)
    remedy = f"raise its {limit} (rabbitmqctl set_{kind}_limits)"
    assert all(remedy in one and "limit" in one.replace(remedy, "") for one in said), said


@on_private_nodes
def test_one_channel_a_connection_is_enough_to_look(limited: Limited) -> None:
    limited.rabbit.node.evaluate("application:set_env(rabbit,channel_max,1)")
    try:
        assert inspect(RabbitConnector(limited.broker), limited.queue)
    finally:
        limited.rabbit.node.evaluate("application:set_env(rabbit,channel_max,2047)")


@on_private_nodes
def test_a_witness_for_which_the_virtual_host_takes_no_more_queues(limited: Limited) -> None:
    limited.rabbit.node.api("PUT", "vhost-limits", limited.rabbit.vhost, "max-queues", value=1)
    said = limited.said(send_with_a_witness)
    assert "raise max-queues (rabbitmqctl set_vhost_limits), or go without a witness" in said


@on_rabbitmq_4
@each_row(("setting", "ask", "where"), [
    ("connection_max", read, " of the node"), ("channel_max_per_node", read, " of the node"),
    ("channel_max_per_node", send_with_a_witness, " of the node"),
    ("consumer_max_per_channel", read, " of the node"), ("cluster_exchange_limit", send_with_a_witness, ""),
])  # fmt: skip
def test_a_limit_of_the_node(
    limited: Limited, setting: str, ask: Callable[[RabbitConnector, str], object], where: str
) -> None:
    limited.rabbit.node.evaluate(f"application:set_env(rabbit,{setting},0)")
    try:
        said = limited.said(ask)
    finally:
        limited.rabbit.node.evaluate(f"application:set_env(rabbit,{setting},infinity)")
    assert f"raise {setting}{where}" in said


@on_private_nodes
def test_a_password_with_an_outer_blank_is_used_as_it_is_and_named_where_it_is_refused(
    limited: Limited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "secret"
    wrong.write_text("secret \n")
    monkeypatch.setitem(os.environ, _SECRET, " secret\n")
    by_file = replace(limited.broker, password_env=None, password_file=str(wrong))
    by_command = replace(limited.broker, password_env=None, password_command=("printf", "secret\\t\\n"))
    for way, broker in (("env", limited.broker), ("file", by_file), ("command", by_command)):
        said = limited.said(read, broker)
        assert f"what brokers.shop.password_{way} gives begins or ends with a blank, which counts" in said
    limited.rabbit.node.api("PUT", "users", "limited", password="secret ", tags="")
    assert read(RabbitConnector(by_file), limited.queue) == 1
