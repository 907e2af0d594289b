"""A look at a broker ends, however much it names and however slowly it answers for each."""

import socket
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from support.analyzers.letters import record
from support.brokers.hostile import Harm, amqp, listen, remoting, remoting_frame, stomp
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import SOON, UNHURRIED

from dlq.connectors import deadline, open_connector
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.base import Connector, Outgoing, ReadRequest, Search, SendRequest, Target
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.core.brokers import plugin_of, resolve
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience
from dlq.core.settings import Source

MASTERS = [f"broker-{n}" for n in range(1000)]
SLOW = 0.02
SOURCE, TARGETS = Source("s", "b", group="g"), [Target("group", "g"), Target("topic", "t")]
BEFORE = {f"t@{one}:0": 0 for one in MASTERS}
LETTER = Outgoing(0, record(broker_kind="rocketmq"), TARGETS[1], {"dlq_replay_id": "k"})


@pytest.fixture
def rocketmq(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connector]:
    """A name server with very many masters, each of which answers everything, a little later."""
    monkeypatch.setattr(patience, "LOOK", 0.5)
    address, wait = list[str](), partial(time.sleep, SLOW)
    queues = [{"brokerName": one, "readQueueNums": 9, "writeQueueNums": 9, "perm": 6} for one in MASTERS]

    def masters(peer: socket.socket) -> None:
        """And that is all on this connection; the next question makes another."""
        table = {one: {"brokerAddrs": {"0": address[0]}} for one in MASTERS}
        peer.sendall(remoting_frame(1, {}, {"brokerAddrTable": table}))
        slow: Any = SimpleNamespace(makefile=peer.makefile, sendall=lambda data: wait() or peer.sendall(data))
        remoting({105: {"queueDatas": queues}, 14: ({"offset": "0"}, b"")}, address)(slow)

    with Server(remoting({106: masters}, address)) as server:
        address.append(server.address)
        yield open_connector(RocketBroker("b", "rocketmq", f"rocketmq://{server.address}", timeout=UNHURRIED))


LOOKS: Mapping[str, tuple[Any, ...]] = {
    "inspect": (SOURCE,), "gauge": (SOURCE,), "discover": (), "read": (ReadRequest(SOURCE, "copy", "p"),),
    "find": (Search("p", [LETTER], 0, BEFORE),),
    **dict.fromkeys(("consumers", "missing_targets", "limits", "consumption", "bounds"), (TARGETS,)),
}  # fmt: skip
"""What is asked, and of what."""


def ask(connector: Connector, look: str) -> object:
    if look == "publish":
        return [*connector.publisher(SendRequest("p")).publish(iter([LETTER]))]
    return getattr(connector, look)(*LOOKS[look])


@pytest.mark.parametrize("look", [*LOOKS, "publish"])
def test_a_cluster_of_very_many_slow_brokers_is_left(look: str, rocketmq: Connector) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerError, match="b: a look takes more than"):
        ask(rocketmq, look)
    assert time.monotonic() - began < SOON


BROKERS: Mapping[str, tuple[Harm, Mapping[str, str]]] = {
    "kafka": (listen, {"url": "kafka://{}"}),
    "activemq": (stomp(listen, "SEND"), {"url": "stomp://{}", "jolokia_url": "http://{}/j"}),
    "rabbitmq": (amqp(listen, "never"), {"url": "amqp://{}", "management_url": "http://{}"}),
}


@pytest.mark.parametrize("kind", BROKERS)
def test_every_broker_s_questions_are_within_a_look(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    behave, urls = BROKERS[kind]
    with Server(behave) as server:
        at: Any = {name: url.format(server.address) for name, url in urls.items()}
        connector = open_connector(plugin_of(kind).settings("b", kind, **at))
        monkeypatch.setattr(patience, "LOOK", -1.0)
        with pytest.raises(BrokerError, match="a look takes more than"):
            connector.discover()
        connector.close()


def test_the_previews_of_very_many_letters_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Artemis that is asked about each letter's own target, and answers a little later."""
    monkeypatch.setattr(patience, "LOOK", 1.0)
    monkeypatch.setattr(Management, "_send", lambda *_: time.sleep(0.1))
    monkeypatch.setattr(Management, "_answers", lambda _, _link, count: [["q"]] * count)
    with Server(stomp(listen, "never", "ActiveMQ-Artemis/2.56.0")) as server:
        connector = open_connector(ActiveMQBroker("b", "activemq", f"stomp://{server.address}"))
        letters = (LETTER._replace(target=Target("queue", f"a{n}::q")) for n in range(1000))
        with pytest.raises(BrokerError, match=r"b: a look takes more than"):
            [*map(connector.preview, letters)]
        assert int(next(letters).target.name.strip("a:q")) < 30
        connector.close()


def test_quick_questions_cost_nothing_of_the_time_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 100))
    asked = deadline.with_shared_deadline(lambda _connector: deadline.check("b"))
    connector: Any = SimpleNamespace()
    while next(ticks) / 100 < 2 * patience.LOOK:
        asked(connector)


def test_a_look_within_another_has_what_is_left_and_nothing_else_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "LOOK", 0.2)
    inner = deadline.with_deadline(lambda: deadline.check("b"))

    @deadline.with_deadline
    def outer() -> None:
        inner()
        time.sleep(0.3)
        inner()

    with pytest.raises(BrokerError, match="b: a look"):
        outer()
    deadline.check("b")
    inner()


@each_row("kind", ["activemq", "kafka", "rabbitmq", "rocketmq"])
def test_all_that_a_broker_is_asked_is_bounded(kind: str) -> None:
    own = vars(resolve(plugin_of(kind).connector))
    asked = own.keys() & {*LOOKS, "members", "coverage", "newer", "preview"}
    assert [name for name in sorted(asked) if not hasattr(own[name], "__wrapped__")] == []
