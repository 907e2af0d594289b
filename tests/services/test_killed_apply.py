"""An apply that is killed with kill -9: only what was on its way is in doubt, and nothing arrives twice."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.activemq.fixtures import Place, on_all
from support.brokers.rocketmq.fixtures import Rocket

from dlq.connectors.rocketmq.message import parse_properties

NUMBER = 3000
each_pace = pytest.mark.parametrize(
    "rate", [(), ("--rate", "500")], ids=["as fast as it goes", "500 a second"]
)


def dlq(folder: Path, *words: str) -> Any:
    done = preloaded.run(["-o", "json", *words], folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def planned(folder: Path, broker: str, source: str, kind: str, target: str, *rate: str) -> str:
    """A plan that sends imported letters to a target."""
    table = f'[brokers.b]\n{broker}\n[sources.s]\nbroker = "b"\n{source}\n'
    (folder / "dlq.toml").write_text(table)
    letters = ({"broker_kind": kind, "queue": "dead", "body_text": f"letter {n}"} for n in range(NUMBER))
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, letters)))
    dlq(folder, "import", "a.jsonl", "--source", "s")
    return str(dlq(folder, "replay", "plan", "--any-advice", "--to", target, *rate)["plan"])


def killed(folder: Path, plan: str) -> None:
    """Apply the plan, and kill the process when it has sent some hundred letters."""
    running = preloaded.start(["replay", "apply", plan], folder)
    deadline = time.monotonic() + 60
    while sum(path.read_bytes()[512:].count(2) for path in (folder / "archive/locks").glob("*.mark")) < 300:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.kill()
    running.communicate()


def resolved(folder: Path, plan: str) -> Counter[str]:
    """What `reconcile` says of the letters that were claimed -> how many."""
    assert dlq(folder, "replay", "reconcile", plan)["resolved"]["unknown"] == 0
    rows = dlq(
        folder, "query", "select detail, count(*) n from replays where detail is not null group by all"
    )
    return Counter({row["detail"]: row["n"] for row in (rows["rows"] if isinstance(rows, dict) else rows)})


def check(folder: Path, plan: str, rate: tuple[str, ...]) -> None:
    killed(folder, plan)
    told = resolved(folder, plan)
    assert told.pop("its sender died before it gave the letter to the broker") > 0
    told.pop("the broker had confirmed it when its sender died", None)
    if rate:
        assert told.total() <= 300, "at most three transactions of ActiveMQ had to be looked up"
    assert dlq(folder, "replay", "apply", plan)["states"]["confirmed"] == NUMBER


def once(replay_ids: Iterable[str]) -> None:
    found = Counter(replay_ids)
    assert (len(found), set(found.values())) == (NUMBER, {1})


@on_all
@pytest.mark.activemq
@each_pace
def test_activemq_gets_each_letter_once(stomp: Place, rate: tuple[str, ...], tmp_path: Path) -> None:
    settings = stomp.settings
    broker = f'kind = "activemq"\nurl = "{settings.url}"\n'
    if settings.password_env:
        broker += f'password_env = "{settings.password_env}"\n'
    target = f"{stomp.queue}.back"
    plan = planned(
        tmp_path, broker, f'queue = "{stomp.queue}"', stomp.connector.kind, f"queue:{target}", *rate
    )
    check(tmp_path, plan, rate)
    once(record.headers["dlq_replay_id"] for record in stomp.drain(target))


@pytest.mark.rocketmq
@each_pace
def test_rocketmq_gets_each_letter_once(rocket: Rocket, rate: tuple[str, ...], tmp_path: Path) -> None:
    rocket.driver.create_topic(rocket.topic)
    broker = f'kind = "rocketmq"\nurl = "{rocket.cluster.url}"\n'
    source = f'group = "{rocket.group}"'
    plan = planned(tmp_path, broker, source, "rocketmq", f"topic:{rocket.topic}", *rate)
    check(tmp_path, plan, rate)
    once(parse_properties(m.properties)["dlq_replay_id"] for m in rocket.driver.messages(rocket.topic))
