"""What a name server or a broker of RocketMQ says, and cannot be true: one line, soon, and nothing archived
that could not be read again."""

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.hostile import remoting
from support.rows import each_row
from support.servers.cutter import Cutter
from support.servers.hostile import Server

from dlq.connectors.base import Target
from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.link.message import BATCH, StoredMessage, expand
from dlq.connectors.rocketmq.link.remoting import ProtocolError, long
from dlq.connectors.rocketmq.look.consumers import consumption
from dlq.connectors.rocketmq.look.doctor import broker_facts
from dlq.connectors.rocketmq.look.routes import route_to
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.connectors.rocketmq.prove import start_offsets
from dlq.connectors.rocketmq.read import topics
from dlq.connectors.rocketmq.read.queue import MessageQueue, Step
from dlq.connectors.rocketmq.read.snapshot import offsets_of, unpulled_offsets
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience

PLACE = MessageQueue("t", "broker-a", 0)
TARGET = Target("topic", "t")
UP = {"runtime": "[ 9 days, 1 hours, 1 minutes, 1 seconds ]", "dispatchBehindBytes": "0"}
UP |= {"bootTimestamp": "1", "commitLogMaxOffset": "2", "commitLogMinOffset": "0"}
Ask = Callable[[Cluster], object]


def offsets(value: str) -> Mapping[int, Any]:
    told = {"minOffset": "0", "maxOffset": value, "nextBeginOffset": "0", "offset": value}
    return {11: (told, b""), 30: (told, b""), 31: (told, b"")}


def queues(**numbers: Any) -> Mapping[int, Any]:
    usual = {"brokerName": "broker-a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    return {105: {"queueDatas": [usual | numbers]}}


def many_queues(brokers: int, each: int) -> Iterator[Mapping[str, Any]]:
    for number in range(brokers):
        yield queues(brokerName=f"b{number}", readQueueNums=each)[105]["queueDatas"][0]


LARGE = str(2**63)
route: Ask = lambda cluster: route_to(cluster, TARGET, "t")  # noqa: E731
ODD: Mapping[str, tuple[Mapping[int, Any], Ask]] = {
    "an offset of 64 bits": (offsets(LARGE), lambda cluster: offsets_of(cluster, PLACE)),
    "an offset of 5,000 digits": (offsets("9" * 5000), lambda cluster: unpulled_offsets(cluster, PLACE)),
    "a billion queues to write to": (queues(writeQueueNums=10**9), route),
    "queues of 1e300": (queues(writeQueueNums=1e300), route),
    "a retention of 400 digits": ({26: b"fileReservedTime=" + b"9" * 400}, broker_facts),
    "a start of 4,000 digits": (
        {28: {"table": UP | {"bootTimestamp": "9" * 4000}}},
        lambda cluster: start_offsets.runtime_of(cluster, "broker-a"),
    ),
    "70,000 queues on three brokers": ({105: {"queueDatas": [*many_queues(3, 23_334)]}}, route),
    "a static topic that is none": ({105: {**queues()[105], "topicQueueMappingByBroker": [7]}}, route),
    "attributes that are none": ({351: {"attributes": [7]}}, lambda cluster: cluster.attributes("t")),
    "epochs that are none": (
        {26: b"enableControllerMode=true\n", 28: {"table": UP}, 1007: {"epochList": [{"epoch": LARGE}]}},
        lambda cluster: start_offsets.bounds(cluster, [TARGET]),
    ),
    "5,000 masters": (
        {106: {"brokerAddrTable": {f"b{n}": {"brokerAddrs": {"0": "h:1"}} for n in range(5000)}}},
        lambda cluster: cluster.masters(),
    ),
}


def asked(answers: Mapping[int, Any], question: Ask) -> Any:
    address: list[str] = []
    with Server(remoting(answers, address)) as server:
        address.append(server.address)
        return question(Cluster(RocketBroker("b", "rocketmq", f"rocketmq://{server.address}")))


@each_row("odd", ODD)
def test_what_cannot_be_true_is_said_in_a_line(odd: str) -> None:
    with pytest.raises(BrokerError, match=r"cannot be (true|understood)") as said:
        asked(*ODD[odd])
    assert len(str(said.value)) < 400


def test_a_name_server_that_has_ended_the_connection_is_asked_over_a_new_one() -> None:
    """Each ends one that is silent for two minutes, and nobody looks meanwhile."""
    with Server(remoting({}, ["h:1"])) as server, Cutter(server.address) as way:
        cluster = Cluster(RocketBroker("b", "rocketmq", f"rocketmq://{way.address}"))
        for _ in range(2):
            assert cluster.topics()
            way.cut()
        cluster.close()


def test_offsets_below_zero_are_none() -> None:
    found = asked(offsets("-5"), lambda cluster: offsets_of(cluster, PLACE))
    assert (found.lowest, found.highest) == (0, 0)


@each_row("committed, waiting", [(0, 2), (4, 2), (11, 1), (12, 0)])
def test_what_is_gone_before_it_was_read_does_not_wait(committed: int, waiting: int) -> None:
    told = {code: ({"offset": str(at)}, b"") for code, at in ((14, committed), (30, 12), (31, 10))}
    [found] = asked(told, lambda cluster: consumption(cluster, Target("group", "g")))
    assert (found.waiting, found.acknowledged) == (waiting, committed)


@each_row(("codes", "clients"), [((206, 206), 0), ((206, 1), None), ((1, 1), None), ((0, 1), 1)])
def test_clients_are_none_only_where_every_broker_says_so(
    codes: tuple[int, int], clients: int | None
) -> None:
    """0: one client; 206: none is online; 1: a failure of its own."""
    told: dict[str, list[object]] = {"connectionSet": [{"clientId": "c"}]}
    answers = [SimpleNamespace(code=code, document=lambda code=code: {} if code else told) for code in codes]
    cluster: Any = SimpleNamespace(
        name="shop", masters=lambda: (0, 1), route=lambda _topic: {}, call=lambda node, *_: answers[node]
    )
    [found] = consumption(cluster, Target("group", "g"))
    assert found.consumers == clients


def test_a_time_of_too_many_digits_is_no_time() -> None:
    told = b'{"offsetTable":{{"a":1}:{"lastUpdateTimestamp":' + b"9" * 5000 + b"}}}"
    assert asked({202: told}, lambda cluster: [*start_offsets._last_shown(cluster, "broker-a", "t")]) == []


@each_row("odd", ["", "1e3", "٣", "0x1", True, 1.5, None, [1], 2**63, -(2**63) - 1])
def test_a_long_is_one_of_java(odd: object) -> None:
    with pytest.raises(ValueError, match="number"):
        long(odd)
    assert (long("-1"), long(2**63 - 1)) == (-1, 2**63 - 1)


def test_a_batch_at_the_last_offset_of_all_is_damaged() -> None:
    batch = StoredMessage("t", 0, 2**63 - 1, 0, BATCH, 0, 0, b"", 0, b"", 0, 0, 0, b"", b"")
    with pytest.raises(ProtocolError, match="a batch at offset"):
        expand(batch)


def test_offsets_that_hold_nothing_for_ever_pass_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "YIELD", -1.0)
    gap = topics.Gap(str(PLACE), 0, 32)
    steps = (Step((), n, [gap._replace(first=n, end=n + 1)]) for n in range(3))
    assert len([*topics.gather(steps, 99, 99)]) == 3
