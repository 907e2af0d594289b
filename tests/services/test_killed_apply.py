"""An apply that is killed with kill -9 while its publisher holds letters: what was only claimed, or held, was
never sent; what was written and not answered is in doubt; and nothing arrives twice. RabbitMQ's is
`e2e/test_replay_rabbitmq.py`."""

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from support import preloaded
from support.brokers.activemq.fixtures import Place, on_all
from support.brokers.kafka.fixtures import KafkaPlace
from support.brokers.rocketmq.fixtures import Rocket
from support.dying import DIED
from support.waiting import PATIENCE, eventually
from support.wire_builders import configure, dlq

from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.replay.runs.marks import NEVER_WRITTEN

FAST, SLOW = 3000, 1000
each_pace = pytest.mark.parametrize(
    "rate", [(), ("--rate", "500")], ids=["as fast as it goes", "500 a second"]
)


def planned(folder: Path, broker: str, source: str, kind: str, target: str, *rate: str) -> str:
    """A plan that sends imported letters to a target."""
    configure(folder, broker, source)
    numbers = range(SLOW if rate else FAST)
    letters = ({"broker_kind": kind, "queue": "dead", "body_text": f"letter {n}"} for n in numbers)
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, letters)))
    dlq(folder, "import", "a.jsonl", "--source", "s")
    return str(dlq(folder, "replay", "plan", "--any-advice", "--to", target, *rate)["plan"])


def killed(folder: Path, plan: str, holding: Sequence[int]) -> dict[str, set[int]]:
    """Apply the plan until the process dies; the letters that it held then, and those that it had written
    and that were not answered."""
    running = preloaded.start(["replay", "apply", plan], folder, dies_holding=holding)
    assert running.wait(PATIENCE) == -signal.SIGKILL, running.communicate()
    found = json.loads((folder / DIED).read_text())
    return {name: set(numbers) for name, numbers in found.items()}


class Replay(NamedTuple):
    """What the ledger says of a letter that was claimed."""

    key: str
    state: str
    detail: str | None


def replays(folder: Path, plan: str) -> dict[int, Replay]:
    """By the letter's number."""
    with closing(sqlite3.connect(folder / "archive" / "ledger.db")) as book:
        rows = book.execute("SELECT number, key, state, detail FROM replays WHERE plan = ?", [plan])
        return {number: Replay(*rest) for number, *rest in rows}


def check(folder: Path, plan: str, holding: Sequence[int], arrived: Callable[[], Iterable[str]]) -> None:
    """`holding`: see `dying.holding`; `arrived`: the replay ids of all letters that came until now."""
    died = killed(folder, plan, holding)
    eventually(lambda: is_reconciled(folder, plan))
    known = replays(folder, plan)
    never = {n for n, one in known.items() if one.detail == NEVER_WRITTEN}
    looked_up = {n for n, one in known.items() if str(one.detail).startswith("the broker shows")}
    assert died["held"] <= never, "what was held was never sent"
    assert died["held"] != never, "neither was what was only claimed"
    assert looked_up == died["written"], "only what was written is in doubt"
    assert {known[n].state for n in never} == {"planned"}
    confirmed = {one.key for one in known.values() if one.state == "confirmed"}
    there = eventually(lambda: found if confirmed <= (found := {*arrived()}) else None)
    assert {one.key for one in known.values() if one.state == "planned"} & there == set()
    assert confirmed == there
    states = dlq(folder, "replay", "apply", plan)["states"]
    assert states["confirmed"] == sum(states.values())
    eventually(lambda: len({*arrived()}) >= states["confirmed"])
    found = Counter(arrived())
    assert (len(found), set(found.values())) == (states["confirmed"], {1})


def is_reconciled(folder: Path, plan: str) -> bool:
    """Whether nothing is unknown: a busy broker may still name the client that is dead."""
    done = preloaded.run(["-o", "json", "replay", "reconcile", plan], folder)
    assert done.returncode in (0, 6), done.stderr
    return bool(json.loads(done.stdout)["resolved"]["unknown"] == 0)


@on_all
@pytest.mark.activemq
@each_pace
def test_activemq_gets_each_letter_once(stomp: Place, rate: tuple[str, ...], tmp_path: Path) -> None:
    settings = stomp.settings
    broker = f'kind = "activemq"\nurl = "{settings.url}"\n'
    if settings.password_env:
        broker += f'password_env = "{settings.password_env}"\n'
    target, there = f"{stomp.queue}.back", list[str]()
    plan = planned(
        tmp_path, broker, f'queue = "{stomp.queue}"', stomp.connector.kind, f"queue:{target}", *rate
    )

    def arrived() -> list[str]:
        there.extend(record.headers["dlq_replay_id"] for record in stomp.drain(target))
        return there

    check(tmp_path, plan, (10, 0 if rate or stomp.broker.artemis else 1), arrived)


@pytest.mark.rocketmq
@each_pace
def test_rocketmq_gets_each_letter_once(rocket: Rocket, rate: tuple[str, ...], tmp_path: Path) -> None:
    rocket.driver.create_topic(rocket.topic)
    broker = f'kind = "rocketmq"\nurl = "{rocket.cluster.url}"\n'
    source = f'group = "{rocket.group}"'
    plan = planned(tmp_path, broker, source, "rocketmq", f"topic:{rocket.topic}", *rate)

    def arrived() -> list[str]:
        found = rocket.driver.messages(rocket.topic)
        return [parse_properties(message.properties)["dlq_replay_id"] for message in found]

    check(tmp_path, plan, (1 if rate else 5, 1), arrived)


@pytest.mark.kafka
@each_pace
def test_kafka_gets_each_letter_once(kafka: KafkaPlace, rate: tuple[str, ...], tmp_path: Path) -> None:
    """What its library was given counts as written."""
    kafka.driver.create_topic(kafka.topic, partitions=2)
    broker, source = f'kind = "kafka"\nurl = "{kafka.node.url}"\n', f'topic = "{kafka.dead}"'
    plan = planned(tmp_path, broker, source, "kafka", f"topic:{kafka.topic}", *rate)

    def arrived() -> list[str]:
        found = [m for n in (0, 1) for m in kafka.driver.records(kafka.topic, partition=n)]
        return [dict(message.headers() or ())["dlq_replay_id"].decode() for message in found]

    check(tmp_path, plan, (0, 1), arrived)
