"""One of two masters of a cluster fails: the next runs end with each letter there once."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.brokers.rocketmq.broker import PORTS, RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.brokers.rocketmq.fixtures import connector_of
from support.brokers.rocketmq.namespace import namespace
from support.brokers.rocketmq.sending import found, outgoing, published, sent_on, shown
from support.brokers.seen import read_all
from support.faults import LIMIT, Archive, Mends, through
from support.waiting import UNHURRIED, eventually

from dlq.connectors.base import ReadRequest, Target
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.settings import Source
from dlq.replay.runs.consumed import Standing, how_far_consumed, up_to

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


def outlived(cluster: RocketMQ, folder: Path, breaks: Callable[[], Any], mends: Mends) -> None:
    """New letters are pulled and old ones go back, both at once, while a broker fails. Afterwards the next
    runs end with each letter archived once, and back once."""
    number = next(_numbers)
    groups = {age: f"{age}-{number}" for age in ("old", "new")}
    sources = {age: {"group": group} for age, group in groups.items()}
    broker = {"kind": "rocketmq", "url": cluster.url}
    archive = Archive(folder, broker, sources)
    topic = f"work-{number}"
    on_each(cluster, lambda driver: driver.create_topic(topic))
    for group in groups.values():
        on_each(cluster, lambda driver, it=group: fill(driver, it))
    archive.pull_to_the_end("old", 2 * NUMBER)
    plan = archive.plan(to=f"topic:{topic}")
    through(archive, plan, 2 * NUMBER, NUMBER + 500, breaks, mends)
    archive = Archive(folder, {**broker, "timeout": UNHURRIED}, sources)  # what is slow now does not hang
    addresses = cluster.addresses.values()
    expected = {f"{groups['new']} {where} {n}".encode(): 1 for where in addresses for n in range(NUMBER)}
    assert archive.bodies("new") == expected
    eventually(lambda: archive.reconcile(plan).unknown <= len(torn(cluster, topic)))
    if torn(cluster, topic):
        archive.reconcile(plan, archive.replay_ids(plan))  # somebody has looked: these bodies are there
    archive.apply(plan)
    assert archive.states(plan) == {"confirmed": 2 * NUMBER}
    eventually(lambda: sum(on_each(cluster, lambda it: it.end(topic))) >= 2 * NUMBER)
    stored = [message for each in on_each(cluster, lambda it: it.messages(topic)) for message in each]
    sent = {f"{groups['old']} {where} {n}".encode(): 1 for where in addresses for n in range(NUMBER)}
    assert Counter(message.body for message in stored) == sent
    whole = [message for message in stored if not is_torn(message)]
    arrived = Counter(parse_properties(message.properties)["dlq_replay_id"] for message in whole)
    assert arrived <= archive.replay_ids(plan)
    assert arrived.total() == len(whole)


def is_torn(message: StoredMessage) -> bool:
    """Whether the broker was killed while it wrote it."""
    return b"\0" in message.properties


def torn(cluster: RocketMQ, topic: str) -> list[StoredMessage]:
    """Messages whose end is missing."""
    return [one for each in on_each(cluster, lambda it: it.messages(topic)) for one in each if is_torn(one)]


def test_a_broker_hangs_until_both_have_given_it_up(rocket_pair: RocketMQ, tmp_path: Path) -> None:

    def goes_on(over: Event) -> None:
        over.wait(LIMIT)
        os.kill(rocket_pair.pid("broker-b"), signal.SIGCONT)

    outlived(rocket_pair, tmp_path, lambda: os.kill(rocket_pair.pid("broker-b"), signal.SIGSTOP), goes_on)


def test_letters_go_to_a_static_topic_whose_queues_were_moved(rocket_pair: RocketMQ) -> None:
    """Its queues are numbered over all brokers; some of each broker's own lead nowhere any more."""
    admin, group, topic = rocket_pair.admin, "moved", "static"
    assert "written" in admin("updateStaticTopic", "-t", topic, "-qn", "4", "-b", "broker-a,broker-b")
    assert "written" in admin("remappingStaticTopic", "-t", topic, "-b", "broker-b")
    on_each(rocket_pair, lambda it: [it.create_topic(f"%DLQ%{group}"), it.send(f"%DLQ%{group}", b"x")])
    connector, target = connector_of(rocket_pair), Target("topic", topic)
    routed = lambda: connector.cluster.route(topic).get("broker-b")  # noqa: E731
    eventually(lambda: (there := routed()) and {*there.to_write} == {0, 1, 2, 3})
    request = ReadRequest(Source("s", "pay", group=group), "drain", "p")
    records = eventually(lambda: some if len(some := read_all(connector, request).records) == 2 else [])
    before, letters = connector.bounds([target]), outgoing(records * 20, target)
    assert {sent.outcome for sent in published(connector, letters[:39])} == {"confirmed"}
    driver = Driver(rocket_pair.addresses["broker-b"])
    eventually(lambda: sum(driver.end(topic, queue) % 10_000 for queue in range(4)) == 39)
    assert shown(connector, letters, before) == ["sent"] * 39 + ["not_sent"]
    driver.create_group("readers", retries=1)
    driver.commit_offset("readers", topic, 10_000)
    [readers] = connector.consumption([target])[target]
    assert readers.waiting >= 39
    driver.close()
    connector.close()


def test_a_letter_on_a_master_that_is_gone_is_not_taken_for_consumed(rocket_pair: RocketMQ) -> None:
    topic, group = f"work-{next(_numbers)}", f"readers-{next(_numbers)}"
    on_each(rocket_pair, lambda it: [it.create_topic(topic), it.create_group(group, retries=1)])
    connector, target = connector_of(rocket_pair), Target("topic", topic)

    def read_all_of(node: str) -> None:
        driver = Driver(rocket_pair.addresses[node])
        eventually(lambda: driver.end(topic))
        driver.commit_offset(group, topic, driver.end(topic))
        driver.close()

    def told() -> Standing:
        connector.cluster.masters(refresh=True)
        return {("pay", target): connector.consumption([target])[target]}

    def evidence() -> str:
        now = up_to(behind, told())
        return how_far_consumed(before, now, {("pay", target): 2}, {("pay", target): 0})

    on_each(rocket_pair, lambda it: it.send(topic, b"live"))
    for node in rocket_pair.addresses:
        read_all_of(node)
    before = eventually(lambda: now if len((now := told())["pay", target][0].logs or ()) == 2 else None)
    on_each(rocket_pair, lambda it: it.send(topic, b"letter"))
    behind = eventually(lambda: now if (now := told())["pay", target][0].waiting == 2 else None)
    read_all_of("broker-a")
    assert evidence() == "waiting"
    rocket_pair.kill("broker-b")
    eventually(lambda: "broker-b" not in connector.cluster.masters(refresh=True))
    assert evidence() == "waiting"
    rocket_pair.start_node("broker-b")
    eventually(lambda: "broker-b" in connector.cluster.masters(refresh=True))
    read_all_of("broker-b")
    assert eventually(lambda: evidence() == "consumed")
    connector.close()


def test_a_master_that_a_controller_has_elected_again_says_nothing_of_what_it_took_before() -> None:
    """It may have followed another one meanwhile, and have cut off what that one lacked."""
    host = namespace().address
    peer = f"{host}:{next(PORTS)}"
    with RocketMQ("5.5.0", controller=peer, enableControllerMode="true", controllerAddr=peer) as cluster:
        connector, target = connector_of(cluster), Target("topic", "orders")
        eventually(lambda: goes_on(cluster, "%DLQ%pay"))
        assert goes_on(cluster, "orders")
        request = ReadRequest(Source("s", "pay", group="pay"), "drain", "p")
        (record, *_) = eventually(lambda: read_all(connector, request).records)
        before = connector.bounds([target])
        [epoch] = [key.rpartition(" ")[2] for key in before if key.startswith("broker-a#epoch ")]
        letters = outgoing([record] * 2, target)
        assert published(connector, letters[:1])[0].outcome == "confirmed"
        cluster.kill("broker-a")
        cluster.start_node("broker-a")
        eventually(lambda: goes_on(cluster, "orders"))
        proof = found(connector, letters, before)
        assert proof.shown == {0: "sent", 1: "unknown"}
        another = f"broker-a has another master (epoch then: {epoch}; now: "
        assert any(another in why for why in proof.doubts)
        connector.close()


def goes_on(cluster: RocketMQ, topic: str) -> bool:
    """Whether a broker takes messages."""
    driver = Driver(cluster.addresses["broker-a"])
    driver.create_topic(topic)
    driver.close()
    return sent_on(cluster, topic)


def test_both_are_restarted_one_after_the_other(rocket_pair: RocketMQ, tmp_path: Path) -> None:
    def restart_the_other(_over: Event) -> None:
        rocket_pair.start_node("broker-a")
        rocket_pair.kill("broker-b", signal.SIGTERM)
        rocket_pair.start_node("broker-b")

    outlived(rocket_pair, tmp_path, lambda: rocket_pair.kill("broker-a", signal.SIGTERM), restart_the_other)


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_pulled(rocket_pair: RocketMQ) -> None:
    source = Source("s", "pay", group="frozen")
    on_each(rocket_pair, lambda it: [it.create_topic("%DLQ%frozen"), it.send("%DLQ%frozen", b"x")])
    connector = connector_of(rocket_pair, timeout="3s")

    def is_all_read() -> bool:
        with suppress(BrokerError):  # a slow one takes three seconds, too
            return len(read_all(connector, ReadRequest(source, "copy", "p")).records) == 2
        return False

    eventually(is_all_read)
    os.kill(rocket_pair.pid("broker-b"), signal.SIGSTOP)
    try:
        seen = read_all(connector, ReadRequest(source, "drain", "p"))
        assert ([record.broker_node for record in seen.records], seen.complete) == (["broker-a"], False)
        assert any(note.startswith("not read: broker-b: ") for note in seen.notes)
        assert "broker-b: " in connector.inspect(source).leaves_out["drain"]
        gauge = connector.gauge(source)
        assert (gauge.depth, "not read: broker-b: " in gauge.note) == (1, True)
        os.kill(rocket_pair.pid("broker-a"), signal.SIGSTOP)
        with pytest.raises(ConnectionLost):
            connector.gauge(source)
    finally:
        for node in rocket_pair.addresses:
            os.kill(rocket_pair.pid(node), signal.SIGCONT)
    eventually(is_all_read)
