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


def test_both_are_restarted_one_after_the_other(rocket_pair: RocketMQ, tmp_path: Path) -> None:
    def restart_the_other(_over: Event) -> None:
        rocket_pair.start_node("broker-a")
        rocket_pair.kill("broker-b", signal.SIGTERM)
        rocket_pair.start_node("broker-b")

    through(rocket_pair, tmp_path, lambda: rocket_pair.kill("broker-a", signal.SIGTERM), restart_the_other)
