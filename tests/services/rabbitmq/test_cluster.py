"""A cluster of three loses nodes: a pull goes on, a replay says where it stops, and the next runs finish."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.brokers.rabbitmq import install
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.cluster import Cluster
from support.brokers.rabbitmq.fixtures import (
    KINDS,
    PASSWORD_VARIABLE,
    Rabbit,
    letters_at_consumers,
    request,
)
from support.brokers.rabbitmq.letters import (
    headers_of_all,
    letter,
    new_plan,
    outcomes,
    publish,
    sent,
    to_queue,
    wait_until_the_node_is_no_newcomer,
)
from support.faults import Archive, Fault, Mends
from support.sending_contract import proven
from support.waiting import eventually

from dlq.capture.pull import PullResult, proven_depth
from dlq.connectors.base import Outgoing, Search
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.core.errors import BrokerError, NodeDown, NoLeader, NotFound
from dlq.replay.runs.apply import Run
from dlq.replay.runs.consumed import Standing, how_far_consumed

pytestmark = pytest.mark.rabbitmq
NUMBER = 2500
"""Letters of each queue: more than one segment, and several windows of a replay."""
SOME = 1100
MANY = 20_001
"""Letters of a queue that is acknowledged while it is read; the last are a batch behind the last window."""
_numbers = count(1)


@pytest.fixture(scope="module", params=["4"], ids=["a cluster"])
def three_nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three nodes of one version, beside the node that other tests of that version share."""
    os.environ[PASSWORD_VARIABLE] = "guest"
    with Cluster(install.install() if request.param == "4" else None) as cluster:
        yield cluster


@pytest.fixture
def rabbit_cluster(three_nodes: Cluster) -> Cluster:
    """What a test has broken and not mended is its fault alone."""
    three_nodes.heal()
    return three_nodes


class Shop:
    """A virtual host whose queues are all led by one node, and an archive of it."""

    def __init__(self, cluster: Cluster, folder: Path, leader: Node, first: Node) -> None:
        """`dlq` connects to `first` as long as it can."""
        self.cluster, self.leader, self.vhost = cluster, leader, f"shop{next(_numbers)}"
        leader.api("PUT", "vhosts", self.vhost)
        Rabbit("", self.vhost, leader, None).allow()
        eventually(self._runs_on_all_nodes)
        broker = {
            "kind": "rabbitmq",
            "url": cluster.url(self.vhost, first),
            "password_env": PASSWORD_VARIABLE,
        }
        self.queues = {f"{age}-{kind}": kind for age in ("old", "new") for kind in KINDS}
        self.archive = Archive(folder, broker, {name: {"queue": name} for name in self.queues})
        rabbit = self.at(leader)
        for name, kind in self.queues.items():
            for queue in (name, f"work.{name}"):
                rabbit.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        for name in self.queues:
            died = {"reason": "rejected", "queue": f"work.{name}", "exchange": "", "routing-keys": [name]}
            headers = {"x-death": [{**died, "count": 1}]}
            rabbit.fill(name, NUMBER, name.encode() + b" %d", headers=headers)
        rabbit.channel.connection.close()

    def _runs_on_all_nodes(self) -> bool:
        """One that does not run it yet refuses clients, who go to another."""
        told: Any = self.leader.api("GET", "vhosts", self.vhost)
        return [*told["cluster_state"].values()] == ["running"] * len(self.cluster.nodes)

    def at(self, node: Node) -> Rabbit:
        """What tests do to a broker, at one node."""
        rabbit = Rabbit(node.url_of(self.vhost), self.vhost, node, None)
        rabbit.channel = rabbit.connect()
        return rabbit

    def arrived(self) -> Counter[str]:
        """Replay id -> how often it lies in a queue of work, when every queue can be read."""
        rabbit = self.at(self.leader)
        found: Counter[str] = Counter()
        for name in self.queues:
            found.update(headers["dlq_replay_id"] for headers in headers_of_all(rabbit, f"work.{name}"))
        rabbit.channel.connection.close()
        return found


def through(shop: Shop, breaks: Callable[[], Any], mends: Mends) -> dict[str, tuple[PullResult, Run]]:
    """New letters are pulled and old ones go back, all at once, while the cluster fails; returns what became
    of that, by kind of queue. Afterwards the next runs end with each letter archived once, and back once."""
    archive = shop.archive
    for kind in KINDS:
        archive.pull_to_the_end(f"old-{kind}", NUMBER)
    plans = {kind: archive.plan(where=f"source = 'old-{kind}'") for kind in KINDS}
    fault = Fault(2 * len(KINDS), breaks, mends)
    with ThreadPoolExecutor() as threads:
        pulls = {kind: threads.submit(archive.pull, f"new-{kind}", fault.after(1)) for kind in KINDS}
        runs = {kind: threads.submit(archive.apply, plans[kind], fault.after(SOME)) for kind in KINDS}
    fault.wait_for_the_end()
    for kind in KINDS:
        archive.pull_to_the_end(f"new-{kind}", NUMBER)
    check_archive(shop)
    for kind, run in runs.items():
        check_states(archive.states(plans[kind]), run.result())
        send_the_rest(shop, plans[kind])
    arrived = shop.arrived()
    assert arrived == sum(map(archive.replay_ids, plans.values()), Counter())
    return {kind: (pulls[kind].result(), runs[kind].result()) for kind in KINDS}


def check_archive(shop: Shop) -> None:
    """Each letter is there once, and no queue has one that is left."""
    for name in shop.queues:
        assert shop.archive.bodies(name) == {f"{name} {n}".encode(): 1 for n in range(NUMBER)}
    rabbit = shop.at(shop.leader)
    eventually(lambda: not any(map(rabbit.depth, shop.queues)))
    rabbit.channel.connection.close()


def check_states(states: dict[str, int], run: Run) -> None:
    """A replay that was stopped says why, and has no more in doubt than a window."""
    assert set(states) <= {"confirmed", "in_doubt", "planned", "returned"}, states
    assert bool(run.lost) == (states["confirmed"] < NUMBER), (states, run.lost)
    assert states.get("in_doubt", 0) <= RabbitConnector.window


def send_the_rest(shop: Shop, plan: str) -> None:
    """The operator looks at the queues, and decides what was in doubt; then the plan is ended, perhaps not by
    the first run: queues may still elect who leads them."""

    def is_ended() -> bool:
        assert shop.archive.reconcile(plan, shop.arrived()).unknown == 0
        with suppress(BrokerError):
            shop.archive.apply(plan)
        return shop.archive.states(plan) == {"confirmed": NUMBER}

    eventually(is_ended)


def test_the_leader_is_killed_while_dlq_is_connected_to_another_node(
    rabbit_cluster: Cluster, tmp_path: Path
) -> None:
    leader, other, _ = rabbit_cluster.nodes
    shop = Shop(rabbit_cluster, tmp_path, leader, first=other)
    pulled, run = through(shop, leader.kill, lambda _over: leader.start())["quorum"]
    assert (pulled.error, pulled.partial, pulled.acknowledged) == (None, False, NUMBER)
    assert (run.lost, run.outcomes) == ([], {"confirmed": NUMBER}), "a replay into a quorum queue goes on"


def test_a_follower_is_cut_off_while_dlq_is_connected_to_it(rabbit_cluster: Cluster, tmp_path: Path) -> None:
    leader, _, follower = rabbit_cluster.nodes
    shop = Shop(rabbit_cluster, tmp_path, leader, first=follower)
    through(shop, lambda: rabbit_cluster.cut_off(follower), lambda _over: rabbit_cluster.join_again(follower))


def held_at(node: Node) -> int | None:
    """Letters of quorum queues at consumers; None while one of them has no leader."""
    with suppress(RuntimeError):
        return letters_at_consumers(node, "quorum")
    return None


def drain_while_its_leader_is_cut_off(cluster: Cluster, folder: Path, share: float) -> None:
    """When so much of the queue has come; each letter is archived once in the end."""
    leader, *_, other = cluster.nodes
    rabbit = Rabbit(leader.url_of("/"), "/", leader, None)
    rabbit.channel = rabbit.connect()
    queue = rabbit.queue("quorum")
    rabbit.fill(queue, MANY)
    Rabbit("", "/", other, None).wait_for_statistics(queue)
    broker = {
        "kind": "rabbitmq",
        "url": cluster.url("/", leader),
        "password_env": PASSWORD_VARIABLE,
        "management_url": other.http,
        "timeout": "2s",
    }
    archive = Archive(folder, broker, {"dead": {"queue": queue}})
    archive.pull("dead", lambda done: done >= share * MANY and cluster.cut_off(leader))
    eventually(lambda: held_at(other) is not None)
    cluster.join_again(leader)
    eventually(lambda: held_at(other) == 0)
    archive.pull_to_the_end("dead", MANY)
    assert archive.bodies("dead") == {b"letter %d" % n: 1 for n in range(MANY)}


@pytest.mark.parametrize("share", [0.5, 1])
def test_the_leader_is_cut_off_while_dlq_is_connected_to_it(
    rabbit_cluster: Cluster, tmp_path: Path, share: float
) -> None:
    """It answers a declare still, and commits no acknowledgement."""
    drain_while_its_leader_is_cut_off(rabbit_cluster, tmp_path, share)


def test_the_leader_of_an_older_cluster_is_cut_off_while_dlq_is_connected_to_it(tmp_path: Path) -> None:
    os.environ[PASSWORD_VARIABLE] = "guest"
    with Cluster() as cluster:
        drain_while_its_leader_is_cut_off(cluster, tmp_path, 0.5)


def test_all_nodes_are_restarted_one_after_the_other(rabbit_cluster: Cluster, tmp_path: Path) -> None:
    first, *_ = rabbit_cluster.nodes
    shop = Shop(rabbit_cluster, tmp_path, first, first)

    def restart_the_others(_over: Event) -> None:
        first.start()
        for node in rabbit_cluster.nodes[1:]:
            node.shut_down()
            node.start()

    through(shop, first.shut_down, restart_the_others)


def test_a_witness_proves_nothing_once_nodes_have_lost_each_other(
    rabbit_cluster: Cluster, tmp_path: Path
) -> None:
    leader, other, third = rabbit_cluster.nodes
    shop = Shop(rabbit_cluster, tmp_path, leader, first=other)
    rabbit = shop.at(leader)
    wait_until_the_node_is_no_newcomer(rabbit)
    broker, plan = rabbit.broker(url=rabbit_cluster.url(shop.vhost, other)), new_plan()
    letters = [letter(number, to_queue("work.new-quorum")) for number in range(3)]
    find = lambda: RabbitConnector(broker).find(Search(plan, letters, 0))  # noqa: E731
    publish(broker, letters[:2], plan=plan, witness=True)
    assert proven(find) == {0: "sent", 1: "sent", 2: "not_sent"}
    rabbit_cluster.cut_off(third)
    rabbit_cluster.join_again(third)
    eventually(lambda: set(find().shown.values()) == {"unknown"})
    eventually(lambda: any("lost another one" in why for why in find().doubts))
    assert set(find().shown.values()) == {"unknown"}
    rabbit.channel.connection.close()


def check_that_it_is_not_taken_for_empty(here: Rabbit, queue: str) -> None:
    """A quorum queue that has just lost its leader, by who is connected to the node that is left. That has a
    classic queue whose name ends like it."""
    wanted, pattern = request(queue), request(f"*{queue}")
    for managed in (here.node.http, None):
        connector = here.connector(management_url=managed)
        found = eventually(lambda to=connector: (now := to.gauge(wanted.source)).depth is None and now)
        assert (found.consumers, proven_depth(found)) == (None, None)
        assert "what lies there is not known" in found.note
        assert connector.consumption([to_queue(queue)]) == {}
        with pytest.raises(NoLeader):
            connector.read(wanted)
    with pytest.raises(NoLeader):
        here.connector().inspect(wanted.source)
    assert here.inspect(queue, managed=False).depth is None
    seen = here.connector().inspect(pattern.source)
    assert f"{queue}: the queue {queue} is" in seen.leaves_out["drain"]


def test_a_quorum_queue_without_a_leader_is_not_taken_for_empty(
    rabbit_cluster: Cluster, tmp_path: Path
) -> None:
    """The leader goes last: before that two could elect the third, which then still knows its letters."""
    leader, other, third = rabbit_cluster.nodes
    shop = Shop(rabbit_cluster, tmp_path, leader, first=other)
    connector = shop.at(other).connector()
    queue = request("old-quorum").source
    eventually(lambda: connector.gauge(queue).depth == NUMBER)
    here = shop.at(other)
    here.channel.queue_declare("a.old-quorum", durable=True)
    third.kill()
    leader.kill()
    check_that_it_is_not_taken_for_empty(here, "old-quorum")
    here.channel.connection.close()
    for node in (leader, third):
        node.start()
    eventually(lambda: proven_depth(connector.gauge(queue)) == NUMBER)


def test_a_counter_that_falls_with_a_node_is_not_taken_for_one_that_began_anew(
    rabbit_cluster: Cluster,
) -> None:
    """What consumers at the other nodes had acknowledged before is no acknowledgement of a letter."""
    near, far, _ = (Rabbit(node.url_of("/"), "/", node, None) for node in rabbit_cluster.nodes)
    for one in (near, far):
        one.channel = one.connect()
    queue = near.queue("classic")
    near.publish(queue, [b"old"] * 8)
    near.wait_for(queue, 8)
    for rabbit, number in ((near, 3), (far, 5)):
        for _ in range(number):
            rabbit.channel.basic_ack(rabbit.channel.basic_get(queue)[0].delivery_tag)
    connector, at = near.connector(), ("shop", to_queue(queue))

    def told(acknowledged: int) -> Standing:
        read = lambda: connector.consumption([at[1]]).get(at[1], ())  # noqa: E731
        return {at: eventually(lambda: (now := read()) and now[0].acknowledged == acknowledged and now)}

    before = told(8)
    near.publish(queue, [b"letter"])
    eventually(lambda: near.channel.basic_get(queue)[0])
    rabbit_cluster.nodes[1].kill()
    assert how_far_consumed(before, told(3), {at: 1}, {at: 0}) == "taken"


def test_a_quorum_queue_of_an_older_cluster_without_a_leader_is_not_taken_for_empty() -> None:
    """Its management API tells no state of such a queue."""
    os.environ[PASSWORD_VARIABLE] = "guest"
    with Cluster() as cluster:
        leader, left, third = (Rabbit(node.url_of("/"), "/", node, None) for node in cluster.nodes)
        leader.channel, left.channel = leader.connect(), left.connect()
        queue = leader.holding([b"x"] * 5, "quorum")
        left.channel.queue_declare(f"a.{queue}", durable=True)
        for other in (third, leader):
            other.node.kill()
        check_that_it_is_not_taken_for_empty(left, queue)
        left.channel.connection.close()


def test_a_queue_whose_node_has_failed_is_not_taken_for_a_full_one(rabbit_cluster: Cluster) -> None:
    """The broker nacks for both, and what lies on the dead node's disk is there again when that is back."""
    owner, other, _ = rabbit_cluster.nodes
    owning, sending = (Rabbit(node.url_of("/"), "/", node, None) for node in (owner, other))
    owning.channel = owning.connect()
    queue = owning.queue("classic", x_overflow="reject-publish", x_max_length=10**6)

    def letters() -> Iterator[Outgoing]:
        for number in range(10 * NUMBER):
            if number == NUMBER:
                owner.kill()
            yield letter(number, to_queue(queue))

    answers, error = sent(sending.broker(), letters(), window=1000)
    assert "is the node that it lies on up?" in str(error)
    assert {*outcomes(answers).values()} - {"returned"} == {"confirmed", "in_doubt"}


def test_a_queue_whose_node_is_down_is_not_taken_for_one_that_is_not_there() -> None:
    """3.10 answers 404 for both."""
    os.environ[PASSWORD_VARIABLE] = "guest"
    with Cluster(size=2) as cluster:
        owner, other = cluster.nodes
        for node, name in ((owner, "orders.dlq"), (other, "pay.dlq")):
            shop = Rabbit(node.url_of("/"), "/", node, None)
            shop.channel = shop.connect()
            shop.channel.queue_declare(name, durable=True)
            shop.channel.connection.close()
        owner.kill()
        connector, target = shop.connector(), to_queue("orders.dlq")
        said = "its letters are there again when that is back"
        eventually(lambda: said in connector.missing_targets([target]).get(target, ""))
        with pytest.raises(NodeDown):
            connector.gauge(request("orders.dlq").source)
        found = connector.gauge(request("*.dlq").source)
        assert (found.depth, proven_depth(found)) == (None, None)
        assert "orders.dlq' in vhost '/' is down" in found.note
        with pytest.raises(NotFound, match="there is no queue strays"):
            connector.gauge(request("strays").source)
