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
from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key
from support.faults import LIMIT, Archive, Fault, Mends
from support.waiting import eventually

from dlq.capture.pull import PullResult
from dlq.connectors.rocketmq.message import StoredMessage, parse_properties
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


def test_a_broker_is_killed_and_started_again(rocket_pair: RocketMQ, tmp_path: Path) -> None:
    through(
        rocket_pair,
        tmp_path,
        lambda: rocket_pair.kill("broker-b"),
        lambda _over: rocket_pair.start_node("broker-b"),
    )


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
        assert states["confirmed"] > 20 and states["in_doubt"] and states["planned"] > 1, states
        eventually(lambda: not cluster._registered())
        cluster.promote("broker-s")
        eventually(lambda: cluster._registered())
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


def test_both_are_restarted_one_after_the_other(rocket_pair: RocketMQ, tmp_path: Path) -> None:
    def restart_the_other(_over: Event) -> None:
        rocket_pair.start_node("broker-a")
        rocket_pair.kill("broker-b", signal.SIGTERM)
        rocket_pair.start_node("broker-b")

    through(rocket_pair, tmp_path, lambda: rocket_pair.kill("broker-a", signal.SIGTERM), restart_the_other)
