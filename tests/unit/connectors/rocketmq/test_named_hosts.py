"""Name servers name the brokers: nothing goes to one that the configuration keeps out, not a signature, and
what goes to a topic goes to the queues that they name."""

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from support.brokers.hostile import remoting
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import UNHURRIED

from dlq.connectors.base import Outgoing, ReadRequest, Search, SendRequest, Target
from dlq.connectors.rocketmq.link.cluster import Cluster as Brokers
from dlq.connectors.rocketmq.link.cluster import Queues
from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.connectors.rocketmq.link.remoting import Frame, RequestCode, ResponseCode
from dlq.connectors.rocketmq.look.routes import route_to, why_unread, writable_queues
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.errors import AccessDenied, BrokerError, Unreachable
from dlq.core.record import Record
from dlq.core.settings import Source

SOURCE, TARGET = Source("s", "b", group="g"), Target("topic", "t")
LETTER = Outgoing(0, Record("1" * 32, "s", "b", "rocketmq", "%DLQ%g"), TARGET, {"dlq_replay_id": "ab" * 16})
HALVES = Source("s", "b", transactions=True)
ASKS: dict[str, Any] = {
    "doctor": lambda it: it.inspect(SOURCE),
    "watch": lambda it: it.gauge(SOURCE),
    "discover": lambda it: it.discover(),
    "pull": lambda it: it.read(ReadRequest(SOURCE, "drain", "p")),
    "pull of transactions": lambda it: it.read(ReadRequest(HALVES, "drain", "p")),
    "consumers": lambda it: it.consumers([TARGET]),
    "bounds": lambda it: it.bounds([TARGET]),
    "find": lambda it: it.find(Search("p", [LETTER], 0, {})),
    "apply": lambda it: [*it.publisher(SendRequest("p", 8)).publish(iter([LETTER]))],
}


KEPT_OUT = r"b names 127\.0\.0\.2:\d+, and brokers\.b\.hosts allows.*nothing was sent there; add it, if it is"


class Cluster(NamedTuple):
    """A name server here, and the broker that it names, on another host."""

    name_server: Server
    broker: Server
    heard: list[bytes]

    def connector(self, **settings: Any) -> RocketConnector:
        url = f"rocketmq://{self.name_server.address}"
        return RocketConnector(RocketBroker("b", "rocketmq", url, timeout=UNHURRIED, **settings))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SECRET", "no one else's")
    heard, named = list[bytes](), list[str]()

    def listen(peer: socket.socket) -> None:
        heard.append(peer.recv(2**16))

    with Server(remoting({}, named)) as name_server, Server(listen, "127.0.0.2") as broker:
        named.append(broker.address)
        yield Cluster(name_server, broker, heard)


@pytest.mark.parametrize("what", ASKS)
def test_a_broker_that_the_configuration_keeps_out_gets_no_byte(cluster: Cluster, what: str) -> None:
    kept_out = cluster.connector(hosts=("*.example",), access_key="k", secret_key_env="SECRET")
    if what == "find":
        assert kept_out.find(Search("p", [LETTER], 0, {})).shown == {0: "unknown"}
    else:
        with pytest.raises(BrokerError, match=KEPT_OUT):
            ASKS[what](kept_out)
    assert (cluster.broker.connections, cluster.heard) == (0, [])


@pytest.mark.parametrize("hosts", [("127.0.0.2",), ()])
def test_a_broker_that_the_configuration_allows_gets_signed_requests(
    cluster: Cluster, hosts: tuple[str, ...]
) -> None:
    connector = cluster.connector(hosts=hosts, access_key="k", secret_key_env="SECRET")
    with pytest.raises(BrokerError):
        connector.inspect(SOURCE)
    assert b'"Signature"' in cluster.heard[0]
    assert b"no one else's" not in cluster.heard[0]


@pytest.mark.parametrize("address", ["cafe::1:10911", "[cafe]::1:10911", "127.0.0.1:1@127.0.0.2:1"])
def test_a_host_is_the_one_that_is_connected_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    connect = socket.create_connection
    monkeypatch.setattr(
        socket, "create_connection", lambda to, *more: tried.append(to[0]) or connect(to, *more)
    )
    with Server(remoting({}, [address])) as name_server:
        url = f"rocketmq://{name_server.address}"
        connector = RocketConnector(RocketBroker("b", "rocketmq", url, hosts=("cafe",)))
        with pytest.raises(BrokerError, match=r"brokers\.b\.hosts allows cafe alone"):
            connector.inspect(SOURCE)
    assert set(tried) == {"127.0.0.1"}


@each_row(("named_by", "told"), [
    ("a name server (ns1:9876)", r"a name server \(ns1:9876\) names that address.*\(brokerIP1\)"),
    ("brokers.pay.url", r"at 127\.0\.0\.1:1: Connection refused$"),
])  # fmt: skip
def test_an_address_that_nobody_reaches_is_told_with_who_named_it(named_by: str, told: str) -> None:
    with pytest.raises(Unreachable, match=told):
        Link("127.0.0.1:1", Access(timeout=2), named_by=named_by)


OWN = [("a", 0), ("a", 1), ("b", 0)]


@each_row(("a", "b", "expected"), [
    (Queues(2, 2, 6), Queues(1, 1, 6), OWN),
    (Queues(1, 8, 6), Queues(4, 1, 6), [("a", 0), ("b", 0)]),
    (Queues(0, 8, 6), Queues(4, 4, 4), []),  # none is read, none is written
    (Queues(8, 8, 2), Queues(1, 1, 6), [("b", 0)]),
    (Queues(8, 8, 2), Queues(0, 1, 6), []),
])  # fmt: skip
def test_no_letter_goes_to_a_queue_that_consumers_do_not_read(
    a: Queues, b: Queues, expected: list[tuple[str, int]]
) -> None:
    cluster: Any = SimpleNamespace(masters=lambda: {"a": "", "b": ""}, route=lambda _: {"a": a, "b": b})
    found = route_to(cluster, Target("topic", "orders"), "orders")
    assert [*found.places] == expected
    assert bool(found.closed) == (not expected)


def test_a_topic_on_a_broker_without_a_master_is_not_called_missing() -> None:
    cluster: Any = SimpleNamespace(masters=lambda: {"a": ""}, route=lambda _: {"b": Queues(2, 2, 6)})
    with pytest.raises(Unreachable, match="no master of b is registered, where orders is"):
        route_to(cluster, Target("topic", "orders"), "orders")


def test_a_broker_that_is_kept_out_refuses_no_letter_to_a_group() -> None:
    def kept_out(*_: object) -> None:
        raise AccessDenied("b names a host that is kept out")

    cluster: Any = SimpleNamespace(
        masters=lambda: {"a": ""}, route=lambda _: {"a": Queues(1, 1, 6)}, groups_of=kept_out
    )
    with pytest.raises(AccessDenied):
        route_to(cluster, Target("group", "pay"), "%RETRY%pay")


@each_row(("codes", "closed"), [
    ((0, 0), True), ((0, ResponseCode.BUSY), False), ((ResponseCode.NO_PERMISSION, 0), False), ((), False),
])  # fmt: skip
def test_a_group_reads_no_retry_topic_only_where_each_broker_tells(
    codes: tuple[int, ...], closed: bool
) -> None:
    nodes = dict(zip("ab", codes, strict=False))
    cluster = Brokers(RocketBroker("b", "rocketmq", "rocketmq://h"))
    known: Any = cluster

    def call(node: str, code: int, _fields: object) -> Frame:
        told = {"groupList": [], "topicList": ["orders"]}
        is_asked = code == RequestCode.TOPIC_GROUPS
        return Frame(nodes[node] if is_asked else 0, 1, True, 0, "", {}, json.dumps(told).encode())

    known.call, known.masters, known.route = call, lambda: nodes, lambda _: dict.fromkeys(nodes)
    assert bool(why_unread(cluster, "pay")) == closed


@each_row(("hosted", "expected"), [
    ((None, None), OWN),  # ordinary, static, static and moved to one broker
    (([0, 2], [1]), [("a", 0), ("b", 1), ("a", 2)]),
    (([], [0]), [("b", 0)]),
])  # fmt: skip
def test_a_static_topics_queues_are_sent_to_by_their_numbers_over_all_brokers(
    hosted: tuple[list[int] | None, list[int] | None], expected: list[tuple[str, int]]
) -> None:
    route = {"a": Queues(2, 2, 6, hosted[0]), "b": Queues(1, 1, 6, hosted[1])}
    cluster: Any = SimpleNamespace(masters=lambda: {"a": "", "b": ""}, route=lambda _: route)
    assert route_to(cluster, Target("topic", "orders"), "orders").places == expected
    assert writable_queues(cluster, "orders") == OWN
