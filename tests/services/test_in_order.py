"""Versions of entities go back in order to a consumer that fails on a third of the first ones again, on each
broker that tells what is consumed; also where apply is killed with kill -9 in every wave."""

import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support import preloaded
from support.brokers.activemq.broker import ARTEMIS, CLASSIC
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit, on_rabbitmq_4
from support.shops import Shop, of_activemq, of_kafka, of_rabbitmq
from support.waiting import PATIENCE, eventually

from dlq.cli.context import Context
from dlq.core.errors import UsageError
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.replays.applying import reconcile_plan
from dlq.operations.replays.in_order import apply_in_order
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay.plans.wanted import Wanted

KEYS = "abcdefghij"
FAILS = {"a 1", "b 1", "c 1"}
WAVES = (10, 7, 7)
"""Messages of each, as three keys stop in the first."""
each_activemq = pytest.mark.parametrize("stomp_broker", [CLASSIC[-1], ARTEMIS], indirect=True)


def replay(shop: Shop, folder: Path, waves: int, kills: Sequence[int] = ()) -> None:
    """Each goes once, but for those behind one that failed, and none before its elder; apply is killed when
    the consumer has got so many messages."""
    texts = [f"{key} {version}" for version in range(1, waves + 1) for key in KEYS]
    shop.fill(texts)
    (folder / "dlq.toml").write_text(
        f'archive = "{folder}/archive"\n{shop.config}{shop.key}[analysis]\nafter_pull = false\n'
    )
    workspace = open_workspace(Context(str(folder / "dlq.toml")).settings, Notes())
    seen, over = list[str](), threading.Event()
    killed = {number: threading.Event() for number in kills}
    assert pull_sources(workspace, PullWanted(mode="drain")).rows[0]["captured"] == len(texts)
    how = Wanted(any_advice=True, to=shop.to, in_order="consumed", witness=True, rate=40.0)

    def make() -> str | None:
        with suppress(UsageError):  # RabbitMQ's management knows a new queue only after some seconds
            return make_plan(workspace, PlanWanted(how=how)).header.plan
        return None

    plan: str = eventually(make)

    def consume(text: str) -> bool:
        """And stand still until the apply is killed: whoever waits for the rest cannot end before."""
        seen.append(text)
        if (kill := killed.get(len(seen))) is not None:
            kill.wait(PATIENCE)
        return text not in FAILS

    consumer = threading.Thread(target=shop.takes, args=(consume, over))
    consumer.start()
    try:
        for number, kill in killed.items():
            running = preloaded.start(["replay", "apply", plan], folder)
            assert eventually(lambda n=number: len(seen) >= n), seen
            running.kill()
            assert running.wait() == -signal.SIGKILL
            kill.set()
            # Again, while a busy broker still names the client that is dead among its connections.
            eventually(lambda: reconcile_plan(workspace, plan)["resolved"]["unknown"] == 0)
        done = apply_in_order(workspace, plan).document
    finally:
        over.set()
        for kill in killed.values():
            kill.set()
        consumer.join()
    stopped = {text[0] for text in FAILS}
    assert {one["key"] for one in done["stopped_keys"]} == stopped, done
    assert sorted(seen) == sorted(one for one in texts if one in FAILS or one[0] not in stopped)
    for key in {*KEYS} - stopped:
        assert [text[2] for text in seen if text[0] == key] == [*"123"[:waves]]


def test_rabbitmq(rabbit: Rabbit, tmp_path: Path) -> None:
    replay(of_rabbitmq(rabbit), tmp_path, 2)


KILLS = [sum(WAVES[:wave]) + 3 for wave in range(len(WAVES))]
"""In the midst of each wave."""


@on_rabbitmq_4
def test_killed_on_rabbitmq(rabbit: Rabbit, tmp_path: Path) -> None:
    replay(of_rabbitmq(rabbit), tmp_path, len(WAVES), KILLS)


@pytest.mark.activemq
@each_activemq
def test_killed_on_activemq(stomp: Place, tmp_path: Path) -> None:
    replay(of_activemq(stomp), tmp_path, len(WAVES), KILLS)


@pytest.mark.kafka
def test_killed_on_kafka(kafka: KafkaPlace, tmp_path: Path) -> None:
    replay(of_kafka(kafka), tmp_path, len(WAVES), KILLS)
