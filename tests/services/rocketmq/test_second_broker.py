"""One of two masters of a cluster fails: the next runs end with each letter there once."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.brokers.rocketmq.broker import PORTS, RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of
from support.brokers.rocketmq.namespace import namespace
from support.brokers.seen import read_all
from support.faults import LIMIT, Archive, Fault, Mends
from support.waiting import eventually

from dlq.capture.pull import PullResult
from dlq.connectors.base import Outgoing, ReadRequest, Search, SendRequest, Target
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.core.clock import now
from dlq.core.settings import Source
from dlq.replay.apply import Run

pytestmark = pytest.mark.rocketmq
NUMBER = 2500
"""Letters of each group on each broker: several segments, and most of a window of a replay."""
_numbers = count(1)


@pytest.fixture(scope="module", params=["5.5.0"], ids=["two masters"])
def rocket_pair(request: pytest.FixtureRequest) -> Iterator[RocketMQ]:
    """Masters that tests may kill."""
    with RocketMQ(request.param, nodes=2) as cluster:
        yield cluster


def on_each(cluster: RocketMQ, what: Callable[[Driver], Any]) -> list[Any]:
    """What a driver of each master says."""
    drivers = [Driver(address) for address in cluster.addresses.values()]
    try:
        return [what(driver) for driver in drivers]
    finally:
        for driver in drivers:
            driver.close()


def fill(driver: Driver, group: str) -> None:
    """Letters whose bodies tell group, broker and number."""
    topic, where = f"%DLQ%{group}", driver.link.address
    driver.create_topic(topic)
    driver.send_many(topic, NUMBER, lambda n: (f"{group} {where} {n}".encode(), {"UNIQ_KEY": unique_key()}))
    eventually(lambda: driver.end(topic) == NUMBER)


def through(
    cluster: RocketMQ, folder: Path, breaks: Callable[[], Any], mends: Mends
) -> tuple[PullResult, Run]:
    """New letters are pulled and old ones go back, both at once, while a broker fails; returns what became of
    that. Afterwards the next runs end with each letter archived once, and back once."""
    number = next(_numbers)
    groups = {age: f"{age}-{number}" for age in ("old", "new")}
    sources = {age: {"group": group} for age, group in groups.items()}
    archive = Archive(folder, {"kind": "rocketmq", "url": cluster.url}, sources)
    topic = f"work-{number}"
    on_each(cluster, lambda driver: driver.create_topic(topic))
    for group in groups.values():
        on_each(cluster, lambda driver, it=group: fill(driver, it))
    archive.pull_to_the_end("old", 2 * NUMBER)
    plan = archive.plan(to=f"topic:{topic}")
    fault = Fault(2, breaks, mends)
    with ThreadPoolExecutor() as threads:
        pulled = threads.submit(archive.pull, "new", fault.after(1))
        run = threads.submit(archive.apply, plan, fault.after(NUMBER + 500))
    fault.wait_for_the_end()
    archive.pull_to_the_end("new", 2 * NUMBER)
    addresses = cluster.addresses.values()
    expected = {f"{groups['new']} {where} {n}".encode(): 1 for where in addresses for n in range(NUMBER)}
    assert archive.bodies("new") == expected
    states = archive.states(plan)
    assert bool(run.result().lost) == (states["confirmed"] < 2 * NUMBER), (states, run.result().lost)
    eventually(lambda: archive.reconcile(plan).unknown <= len(torn(cluster, topic)))
    if torn(cluster, topic):
        archive.reconcile(plan, archive.replay_ids(plan))  # somebody has looked: these bodies are there
    archive.apply(plan)
    assert archive.states(plan) == {"confirmed": 2 * NUMBER}
    stored = [message for found in on_each(cluster, lambda it: it.messages(topic)) for message in found]
    sent = {f"{groups['old']} {where} {n}".encode(): 1 for where in addresses for n in range(NUMBER)}
    assert Counter(message.body for message in stored) == sent
    whole = [message for message in stored if not is_torn(message)]
    arrived = Counter(parse_properties(message.properties)["dlq_replay_id"] for message in whole)
    assert arrived <= archive.replay_ids(plan)
    assert arrived.total() == len(whole)
    return pulled.result(), run.result()


def is_torn(message: StoredMessage) -> bool:
    """Whether the broker was killed while it wrote it."""
    return b"\0" in message.properties


def torn(cluster: RocketMQ, topic: str) -> list[StoredMessage]:
    """Messages whose end is missing."""
    return [one for found in on_each(cluster, lambda it: it.messages(topic)) for one in found if is_torn(one)]


def test_a_broker_hangs_until_both_have_given_it_up(rocket_pair: RocketMQ, tmp_path: Path) -> None:

    def goes_on(over: Event) -> None:
        over.wait(LIMIT)
        os.kill(rocket_pair.pid("broker-b"), signal.SIGCONT)

    through(rocket_pair, tmp_path, lambda: os.kill(rocket_pair.pid("broker-b"), signal.SIGSTOP), goes_on)


def test_a_slave_that_lags_is_promoted_in_mid_replay(tmp_path: Path) -> None:
    """It lacks what came last, and the topic: nothing is concluded, nothing is sent again, and it is said."""
    with RocketMQ("5.5.0") as cluster:
        driver = Driver(cluster.addresses["broker-a"])
        fill(driver, "pay")
        cluster.start_slave("broker-s")
        slave = Driver(cluster.addresses["broker-s"])
        eventually(lambda: slave.end("%DLQ%pay") == NUMBER)
        cluster.kill("broker-s")
        driver.create_topic("work")
        archive = Archive(tmp_path, {"kind": "rocketmq", "url": cluster.url}, {"s": {"group": "pay"}})
        archive.pull_to_the_end("s", NUMBER)
        plan = archive.plan(to="topic:work")
        assert archive.apply(plan, lambda sent: cluster.kill("broker-a") if sent > 500 else None).lost
        states = archive.states(plan)
        assert states["confirmed"] > 20
        assert min(states.get(state, 0) for state in ("in_doubt", "planned")) > 1, states
        eventually(lambda: not cluster.registered())
        cluster.promote("broker-s")
        eventually(lambda: cluster.registered())
        resolved = archive.reconcile(plan)
        assert (resolved.sent, resolved.not_sent, resolved.unknown) == (0, 0, states["in_doubt"])
        said = "\n".join(resolved.notes)
        assert "broker-a has another master" in said
        assert "it shows nothing of 20 of the last 20 letters that were confirmed there" in said
        [refused] = archive.apply(plan).refused
        assert f"and {states['planned'] - 1} more are refused: no broker has a writable topic work" in refused
        assert archive.states(plan) == {
            **{state: states[state] for state in ("confirmed", "in_doubt")},
            "refused": states["planned"],
        }


def test_letters_go_to_a_static_topic_whose_queues_were_moved(rocket_pair: RocketMQ) -> None:
    """Its queues are numbered over all brokers; some of each broker's own lead nowhere any more."""
    admin, group, topic = rocket_pair.admin, "moved", "static"
    assert "written" in admin("updateStaticTopic", "-t", topic, "-qn", "4", "-b", "broker-a,broker-b")
    assert "written" in admin("remappingStaticTopic", "-t", topic, "-b", "broker-b")
    on_each(rocket_pair, lambda it: [it.create_topic(f"%DLQ%{group}"), it.send(f"%DLQ%{group}", b"x")])
    connector, target = connector_of(rocket_pair), Target("topic", topic)
    eventually(lambda: set(connector.cluster.route(topic)["broker-b"].to_write) == {0, 1, 2, 3})
    request = ReadRequest(Source("s", "pay", group=group), "drain", "p")
    records = eventually(lambda: found if len(found := read_all(connector, request).records) == 2 else [])
    before, since = connector.bounds([target]), now()
    letters = [Outgoing(i, records[i % 2], target, {"dlq_replay_id": f"{i:032x}"}) for i in range(40)]
    assert outcomes(connector, letters[:39]) == ["confirmed"] * 39
    driver = Driver(rocket_pair.addresses["broker-b"])
    eventually(lambda: sum(driver.end(topic, queue) % 10_000 for queue in range(4)) == 39)
    found = connector.find(Search("plan", letters, since, before))
    assert found.shown == {n: "sent" if n < 39 else "not_sent" for n in range(40)}, found.doubts
    driver.create_group("readers", retries=1)
    driver.commit_offset("readers", topic, 10_000)
    [readers] = connector.consumption([target])[target]
    assert readers.waiting >= 39
    driver.close()
    connector.close()


def outcomes(connector: RocketConnector, letters: list[Outgoing]) -> list[str]:
    """What becomes of letters that go out together."""
    publisher = connector.publisher(SendRequest("plan", 64))
    try:
        return [sent.outcome for sent in publisher.publish(iter(letters))]
    finally:
        publisher.close()


def test_a_master_that_a_controller_has_elected_again_says_nothing_of_what_it_took_before() -> None:
    """It may have followed another one meanwhile, and have cut off what that one lacked."""
    host = namespace().address
    peer = f"{host}:{next(PORTS)}"
    with RocketMQ("5.5.0", controller=peer, enableControllerMode="true", controllerAddr=peer) as cluster:
        connector, target = connector_of(cluster), Target("topic", "orders")
        eventually(lambda: goes_on(cluster, "%DLQ%pay"))
        assert goes_on(cluster, "orders")
        request = ReadRequest(Source("s", "pay", group="pay"), "drain", "p")
        (record, *_) = read_all(connector, request).records
        before = connector.bounds([target])
        assert "broker-a#epoch 1" in before
        letters = [Outgoing(i, record, target, {"dlq_replay_id": f"{i:032x}"}) for i in range(2)]
        assert outcomes(connector, letters[:1]) == ["confirmed"]
        cluster.kill("broker-a")
        cluster.start_node("broker-a")
        eventually(lambda: goes_on(cluster, "orders"))
        found = connector.find(Search("plan", letters, now(), before))
        assert found.shown == {0: "sent", 1: "unknown"}
        assert any("broker-a has another master (epoch then: 1; now: " in why for why in found.doubts), (
            found.doubts
        )
        connector.close()


def goes_on(cluster: RocketMQ, topic: str) -> bool:
    """Whether a broker takes messages."""
    driver = Driver(cluster.addresses["broker-a"])
    driver.create_topic(topic)
    fields = driver.send_fields(topic, {"UNIQ_KEY": unique_key()})
    code = driver.link.call(RequestCode.SEND_V2, fields, b"other").code
    driver.close()
    return code == 0


def test_both_are_restarted_one_after_the_other(rocket_pair: RocketMQ, tmp_path: Path) -> None:
    def restart_the_other(_over: Event) -> None:
        rocket_pair.start_node("broker-a")
        rocket_pair.kill("broker-b", signal.SIGTERM)
        rocket_pair.start_node("broker-b")

    through(rocket_pair, tmp_path, lambda: rocket_pair.kill("broker-a", signal.SIGTERM), restart_the_other)
