"""What the management API of RabbitMQ is asked, how often, and what it tells of nodes."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from support.rows import each_row
from support.servers.hostile import Server

from dlq.connectors.rabbitmq.look.consumers import list_queues
from dlq.connectors.rabbitmq.look.discovery import discover
from dlq.connectors.rabbitmq.look.management import Management, ManagementError
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.rabbitmq.prove.nodes import are_as_before, describe_nodes
from dlq.connectors.rabbitmq.prove.witness import _copied_queues, _may_lack, wait_for_the_end_of
from dlq.connectors.rabbitmq.read.pattern import resolve
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience

GOING = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
GONE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def answers() -> list[bytes]:
    return []


@pytest.fixture
def broker(answers: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[RabbitBroker]:
    """Its management API gives these answers, and then 404 whatever it is asked: another path, a gateway, no
    such virtual host."""
    monkeypatch.setenv("WEB", "s3cret")
    monkeypatch.setattr(patience, "FETCH", 0.0)

    def answer(peer: socket.socket) -> None:
        while peer.recv(2**16):
            peer.sendall(answers.pop(0) if answers else GONE)

    with Server(answer) as server:
        url = f"http://{server.address}"
        yield RabbitBroker("b", "rabbitmq", "amqp://u@h", password_env="WEB", management_url=url)


@each_row("times", [0, 1, 2, 3])
def test_what_goes_away_while_it_is_looked_at_is_asked_for_again(
    broker: RabbitBroker, answers: list[bytes], times: int
) -> None:
    answers += [GOING] * times
    if times < 3:
        assert Management(broker).get("queues", "/", "gone") is None
    else:
        with pytest.raises(ManagementError, match="does not answer: HTTP 500 Internal Server Error"):
            Management(broker).get("queues", "/", "gone")
    assert answers == []


LOOKS: dict[str, Callable[[RabbitBroker], Any]] = {
    "dead-letter queues": discover,
    "all queues": list_queues,
    "the queues of a pattern": lambda broker: resolve(broker, "*.dlq"),
    "nodes": lambda broker: describe_nodes(Management(broker)),
    "the connections of a dead sender": lambda broker: wait_for_the_end_of("of a plan", Management(broker)),
}


@each_row("look", LOOKS)
def test_a_list_that_is_not_there_is_not_an_empty_one(look: str, broker: RabbitBroker) -> None:
    with pytest.raises(BrokerError, match=r"management_url \(127.*knows nothing of .*is the path right\?"):
        LOOKS[look](broker)


def test_who_knows_nothing_has_no_bindings_and_a_target_may_lack_what_its_witness_holds(
    broker: RabbitBroker,
) -> None:
    assert _copied_queues(Management(broker), "p", {"orders"}) == set()
    assert _may_lack(Management(broker), {"q"}).keys() == {"q"}


UP = 60_000
MADE = 1_000_000
LINK = {"name": "a", "sock_port": 2, "peer_port": 1}


class Told(Management):
    """What a management API says."""

    def __init__(self, told_at: int | None, nodes: list[dict[str, Any]]) -> None:
        self.told_at, self._nodes = told_at, nodes

    def get_all(self, *_path: str, **_query: str) -> Any:
        return self._nodes


def cluster(after: int = 0, other: str = "b", **changes: Any) -> Told:
    """Two nodes, so many milliseconds after the plan's exchange was made; `changes` are those of one."""
    usual = {"running": True, "uptime": UP + after}
    one = {"name": "a", "cluster_links": [{"name": other, "sock_port": 1, "peer_port": 2}], **usual}
    return Told(MADE + after, [one, {"name": other, "cluster_links": [LINK], **usual, **changes}])


def told_of(cluster: Told) -> str:
    return json.dumps(describe_nodes(cluster))


def test_nodes_that_did_not_restart_are_as_before() -> None:
    for late in (0, 5_000, -5_000):
        assert are_as_before(BEFORE, describe_nodes(cluster(DAY, uptime=UP + DAY + late)))


BEFORE, DAY, NEW = told_of(cluster()), 86_400_000, cluster(uptime=3_000)
IS_NOT: Mapping[str, tuple[object, Told]] = {
    "restarted just now": (BEFORE, cluster(DAY, uptime=1_000)),
    "restarted just afterwards": (BEFORE, cluster(DAY, uptime=DAY - 1_000)),
    "lost another one": (BEFORE, cluster(5_000, cluster_links=[{**LINK, "sock_port": 3, "peer_port": 1}])),
    "is another one": (BEFORE, cluster(5_000, other="c")),
    "was new": (told_of(NEW), NEW),
    **{f"said nothing: {said}": (said, cluster())
       for said in (None, "", "[]", "{}", '{"a": 1, "b": []}', '{"a": {}, "b": {"uptime": "x"}}', "{")},
}  # fmt: skip


@each_row("what", IS_NOT)
def test_what_a_node_went_through_or_did_not_say_is_not_as_before(what: str) -> None:
    before, now = IS_NOT[what]
    assert not are_as_before(before, describe_nodes(now))


@each_row("told", [
    Told(MADE, []), Told(None, cluster()._nodes), cluster(uptime=None), cluster(cluster_links=[]),
    cluster(cluster_links={"name": "a"}), cluster(cluster_links=[["a"], {"name": "c"}]),
])  # fmt: skip
def test_what_the_management_does_not_tell_proves_nothing(told: Told) -> None:
    with pytest.raises(ManagementError):
        describe_nodes(told)
