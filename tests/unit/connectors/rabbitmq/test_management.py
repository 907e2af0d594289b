"""What the management API of RabbitMQ is asked, how often, and what it tells of nodes."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.servers.hostile import Server

from dlq.connectors.rabbitmq.look.consumers import list_queues
from dlq.connectors.rabbitmq.look.discovery import discover
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.prove.nodes import are_as_before, describe_nodes
from dlq.connectors.rabbitmq.prove.witness import _bound, _may_lack, wait_for_the_end_of
from dlq.connectors.rabbitmq.read.pattern import resolve
from dlq.core import patience
from dlq.core.errors import BrokerError

GOING = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> RabbitBroker:
    monkeypatch.setitem(os.environ, "WEB", "s3cret")
    monkeypatch.setattr(patience, "FETCH", 0.0)
    return RabbitBroker("b", "rabbitmq", "amqp://u@h", password_env="WEB")


@pytest.fixture
def knowing_nothing(broker: RabbitBroker) -> Iterator[RabbitBroker]:
    """Its management API answers 404 whatever it is asked: another path, a gateway, no such virtual host."""

    def answer(peer: socket.socket) -> None:
        while peer.recv(2**16):
            peer.sendall(GONE)

    with Server(answer) as server:
        yield RabbitBroker(**{**vars(broker), "management_url": f"http://{server.address}"})


@pytest.mark.parametrize(("answers", "says"), [
    ([GONE], None),
    ([GOING, GONE], None),
    ([GOING, GOING, GONE], None),
    ([GOING] * 3, "does not answer: HTTP 500 Internal Server Error"),
])  # fmt: skip
def test_what_goes_away_while_it_is_looked_at_is_asked_for_again(
    broker: RabbitBroker, answers: list[bytes], says: str | None
) -> None:
    left = [*answers]

    def answer(peer: socket.socket) -> None:
        while peer.recv(2**16):
            peer.sendall(left.pop(0))

    with Server(answer) as server:
        asked = Management(RabbitBroker(**{**vars(broker), "management_url": f"http://{server.address}"}))
        if says is None:
            assert asked.get("queues", "/", "gone") is None
        else:
            with pytest.raises(ManagementError, match=says):
                asked.get("queues", "/", "gone")
    assert left == []


LOOKS: dict[str, Callable[[RabbitBroker], Any]] = {
    "dead-letter queues": discover,
    "all queues": list_queues,
    "the queues of a pattern": lambda broker: resolve(broker, "*.dlq"),
    "nodes": lambda broker: describe_nodes(Management(broker)),
    "the connections of a dead sender": lambda broker: wait_for_the_end_of("of a plan", Management(broker)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_list_that_is_not_there_is_not_an_empty_one(look: str, knowing_nothing: RabbitBroker) -> None:
    with pytest.raises(BrokerError, match=r"management_url \(127.*knows nothing of .*is the path right\?"):
        LOOKS[look](knowing_nothing)


def test_an_exchange_that_is_gone_has_no_bindings(knowing_nothing: RabbitBroker) -> None:
    assert _bound(Management(knowing_nothing), "p", {"orders"}) == set()


def test_a_target_that_is_not_shown_may_lack_what_its_witness_holds(knowing_nothing: RabbitBroker) -> None:
    assert _may_lack(Management(knowing_nothing), {"q"}) == {"q"}


LINKS = {
    "a": [{"name": "b", "sock_port": 1, "peer_port": 2}],
    "b": [{"name": "a", "sock_port": 2, "peer_port": 1}],
}
UP = 60_000
MADE = 1_000_000


class Told(Management):
    """What a management API says."""

    def __init__(self, told_at: int | None, nodes: list[dict[str, Any]]) -> None:
        self.told_at, self._nodes = told_at, nodes

    def get_all(self, *_path: str, **_query: str) -> Any:
        return self._nodes


def cluster(after: int = 0, **changes: Any) -> Told:
    """Two nodes, so many milliseconds after the plan's exchange was made; `changes` are those of one."""
    nodes = [
        {"name": name, "running": True, "uptime": UP + after, "cluster_links": LINKS[name]} for name in "ab"
    ]
    return Told(MADE + after, [nodes[0], {**nodes[1], **changes}])


def test_nodes_that_did_not_restart_are_as_before() -> None:
    before = json.dumps(describe_nodes(cluster()))
    for late in (0, 5_000, -5_000):
        assert are_as_before(before, describe_nodes(cluster(86_400_000, uptime=UP + 86_400_000 + late)))


@pytest.mark.parametrize(("after", "changes"), [
    (86_400_000, {"uptime": 1_000}),
    (86_400_000, {"uptime": 86_400_000 - 1_000}),
    (5_000, {"cluster_links": [{"name": "a", "sock_port": 3, "peer_port": 1}]}),
    (5_000, {"name": "c", "cluster_links": LINKS["b"]}),
], ids=["restarted just now", "restarted just afterwards", "lost another one", "is another one"])  # fmt: skip
def test_what_a_node_went_through_is_seen(after: int, changes: dict[str, Any]) -> None:
    before = json.dumps(describe_nodes(cluster()))
    now = cluster(after, **changes)
    if "name" in changes:
        now._nodes[0]["cluster_links"] = [{"name": "c", "sock_port": 1, "peer_port": 2}]
    assert not are_as_before(before, describe_nodes(now))


def test_a_node_that_was_new_is_never_as_before() -> None:
    before = json.dumps(describe_nodes(cluster(uptime=3_000)))
    assert not are_as_before(before, describe_nodes(cluster(uptime=3_000)))


@pytest.mark.parametrize(
    "before", [None, "", "[]", "{}", '{"a": 1, "b": []}', '{"a": {}, "b": {"uptime": "x"}}', "{"]
)
def test_what_says_nothing_is_not_as_before(before: object) -> None:
    assert not are_as_before(before, describe_nodes(cluster()))


@pytest.mark.parametrize("told", [
    Told(MADE, []), Told(None, cluster()._nodes), cluster(uptime=None), cluster(cluster_links=[]),
    cluster(cluster_links={"name": "a"}), cluster(cluster_links=[["a"], {"name": "c"}]),
])  # fmt: skip
def test_what_the_management_does_not_tell_proves_nothing(told: Told) -> None:
    with pytest.raises(ManagementError):
        describe_nodes(told)
