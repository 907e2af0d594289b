"""A consumer that forgets after a minute what it has done, and its owner's word: nothing that is sent by it
is done twice, and the messages that it acknowledged for nothing are named."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support import teams
from support.brokers.activemq.broker import ARTEMIS, CLASSIC
from support.brokers.activemq.fixtures import Place
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rabbitmq.fixtures import Rabbit
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ
from support.teams import Consumer, Delivery, Team
from support.waiting import eventually

from dlq.archive.user_sql import run
from dlq.cli.context import Context
from dlq.core.clock import now
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.outcome import ExitCode
from dlq.operations.reading.letters import count_letters
from dlq.operations.reading.selecting import EVERY
from dlq.operations.reading.views import open_views
from dlq.operations.replays.applying import apply_plan
from dlq.operations.replays.owners import check_replay
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay.plans.wanted import Wanted

OLDER, NEWER = range(500), range(500, 1000)
LOST = frozenset(range(0, 1000, 14))
"""Orders that are acknowledged, and of which nothing is done: 7 %."""
MINUTE = 60_000_000
PROGRAM = """
import json, sys
done = json.load(open("done.json"))
print(json.dumps([order for order in json.load(sys.stdin) if order in done]))
"""
CONSUMER = f"""
key = "json:$.order"
[consumers.billing]
sources = ["letters"]
replay = "safe"
because = "dedupes on the order for a minute"
holds_for = "60s"
verify = [{json.dumps(sys.executable)}, "-c", {json.dumps(PROGRAM)}]
"""


class Billing(Consumer):
    """Bills each order that it does not remember, and fails with all but replays."""

    def __init__(self, team: Team, clock: Callable[[], int]) -> None:
        super().__init__(team)
        self._clock, self._billed_at = clock, dict[int, int]()
        self.billed = Counter[int]()

    def _work(self, one: Delivery) -> None:
        self.mended, order = one.replay_id is not None, json.loads(one.body)["order"]
        if order not in LOST and self._clock() - self._billed_at.get(order, -MINUTE) > MINUTE:
            self.billed[order] += 1
            self._billed_at[order] = self._clock()
        super()._work(one)


@pytest.fixture
def keep_the_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Team], None]:
    stopped: list[int] = []
    monkeypatch.setattr("dlq.replay.plans.plan.now", lambda: stopped[0])
    monkeypatch.chdir(tmp_path)
    return partial(kept, folder=tmp_path, clock=stopped)


def kept(team: Team, folder: Path, clock: list[int]) -> None:
    """The clock of consumer and plan stands at the moment that is put in."""
    (folder / "dlq.toml").write_text(f"{team.broker}{CONSUMER}")
    workspace = open_workspace(Context().settings, Notes())
    billing = Billing(team, lambda: clock[0] if clock else now())
    billing.start()
    try:
        team.produce(OLDER)
        eventually(lambda: billing.fresh == len(OLDER))
        eventually(lambda: capture(workspace) == len(OLDER))  # by then the last of them has died
        between = now()
        time.sleep(1.1)  # some brokers say the second alone
        team.produce(NEWER)
        eventually(lambda: billing.fresh == len(OLDER) + len(NEWER))
        clock.append(between + MINUTE)
        eventually(lambda: capture(workspace) == len(OLDER) + len(NEWER))
        replay_by_the_word(workspace, billing, folder)
        replay_without_it(workspace, billing)
    finally:
        billing.end()


def capture(workspace: Workspace) -> int:
    """How many letters are archived by now."""
    pull_sources(workspace, PullWanted())
    return count_letters(workspace, EVERY)


def replay_by_the_word(workspace: Workspace, billing: Billing, folder: Path) -> None:
    made = make_plan(workspace, PlanWanted(how=Wanted(fixed=True)))
    assert made.header.left_out == {"check_first": len(OLDER)}
    assert made.header.owners == [
        "billing: safe (dedupes on the order for a minute); 500 of 1,000 are older: check_first"
    ]
    assert apply_plan(workspace, made.header.plan).code is ExitCode.DONE
    eventually(lambda: len(billing.done) == len(NEWER))
    assert billing.billed == Counter({*OLDER, *NEWER} - LOST), "nothing is billed twice"

    (folder / "done.json").write_text(json.dumps([*map(str, billing.billed)]))
    checked = check_replay(workspace, made.header.plan)
    [told] = checked.document["consumers"]
    assert (told["processed"], told["unknown"]) == (len(set(NEWER) - LOST), 0)
    with open_views(workspace) as views:
        sql = "SELECT key FROM letters WHERE record_id IN (SELECT unnest(?))"
        named = {int(key) for (key,) in run(views, sql, [told["not_processed"]]).rows}
    assert named == set(NEWER) & LOST
    assert checked.code is ExitCode.PARTLY


def replay_without_it(workspace: Workspace, billing: Billing) -> None:
    """What the word held back would have been billed twice."""
    workspace = replace(workspace, settings=replace(workspace.settings, consumers={}))
    plan = make_plan(workspace, PlanWanted(how=Wanted(any_advice=True))).header.plan
    assert apply_plan(workspace, plan).code is ExitCode.DONE
    eventually(lambda: len(billing.done) == len(OLDER) + len(NEWER))
    assert {order for order, times in billing.billed.items() if times > 1} == set(OLDER) - LOST


@pytest.mark.parametrize("rabbit_node", ["4"], indirect=True)
def test_rabbitmq(rabbit: Rabbit, keep_the_word: Callable[[Team], None]) -> None:
    keep_the_word(teams.rabbitmq_team(rabbit))


@pytest.mark.activemq
@pytest.mark.parametrize("stomp_broker", [CLASSIC[-1]], indirect=True)
def test_classic(stomp: Place, keep_the_word: Callable[[Team], None]) -> None:
    keep_the_word(teams.activemq_team(stomp))


@pytest.mark.activemq
@pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
def test_artemis(stomp: Place, keep_the_word: Callable[[Team], None]) -> None:
    keep_the_word(teams.artemis_team(stomp))


@pytest.mark.rocketmq
@pytest.mark.parametrize("rocket_server", ROCKETMQ[:1], indirect=True)
def test_rocketmq(rocket: Rocket, keep_the_word: Callable[[Team], None]) -> None:
    keep_the_word(teams.rocketmq_team(rocket))


@pytest.mark.kafka
def test_kafka(kafka: KafkaPlace, keep_the_word: Callable[[Team], None]) -> None:
    keep_the_word(teams.kafka_team(kafka))
