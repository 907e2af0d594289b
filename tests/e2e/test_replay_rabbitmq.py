"""Back into a real RabbitMQ with the installed command: whatever breaks, each letter has one effect."""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError
from support import preloaded
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_private_nodes
from support.brokers.rabbitmq.letters import headers_of_all, wait_until_the_node_is_no_newcomer
from support.dying import DIED
from support.waiting import PATIENCE

from dlq.archive.store import LocalStore
from dlq.replay import planfile

Dlq = Callable[..., Any]
WINDOW = 400
KEY, COPY = "order.created.eu", "audit.order"


Die = Callable[[Rabbit, int, str], tuple[str, str]]


@dataclass
class Shop:
    """A dead-letter queue (`dead`) that was drained into an archive, and the queue where its letters died."""

    rabbit: Rabbit
    folder: Path
    work: str
    dlq: Dlq
    dead: str

    def plan(self, *words: str) -> str:
        done = self.dlq("replay", "plan", "--any-advice", *words, "-o", "json")
        assert done.code == 0, done.err
        return str(done.json["plan"])

    def start(self, *words: str, dies_holding: Sequence[int] = ()) -> preloaded.Running:
        """The command in the background; see `dying.holding`."""
        return preloaded.start([*words, "-o", "json"], self.folder, dies_holding=dies_holding)

    def ids(self, plan: str, numbers: Sequence[int]) -> set[str]:
        """Record ids of letters of a plan."""
        letters = self.letters(plan)
        return {letters[number] for number in numbers}

    def wait_for(self, number: int, running: preloaded.Running) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.rabbit.depth(self.work) < number:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def effects(self) -> Counter[str]:
        """Take all that arrived, as a consumer would: record id -> how often it had an effect."""
        return Counter(found["dlq_replay_of"] for found in headers_of_all(self.rabbit, self.work, take=True))

    def arrived(self) -> set[str]:
        """Record ids in the queue, which stay there."""
        return {found["dlq_replay_of"] for found in headers_of_all(self.rabbit, self.work)}

    def letters(self, plan: str) -> list[str]:
        store = LocalStore(str(self.folder / "archive"))
        return [one.record_id for one in planfile.letters(store, plan)]

    def states(self, plan: str) -> dict[str, int]:
        done = self.dlq("replay", "status", plan, "-o", "json")
        return {state: count for state, count in done.json["states"].items() if count}


def died(rabbit: Rabbit, number: int, kind: str) -> tuple[str, str]:
    """A queue of dead letters, and the one where they died."""
    letters = rabbit.queue()
    work = rabbit.queue(kind, x_dead_letter_exchange="", x_dead_letter_routing_key=letters)
    rabbit.fill(work, number, b"order %d", message_id="m", headers={"app": "orders"})
    rabbit.reject(work, number)
    rabbit.wait_for(letters, number)
    return letters, work


def died_by_topic(rabbit: Rabbit, number: int, kind: str) -> tuple[str, str]:
    """The same where the key leads everywhere: to the queue, to another one, and to that of dead letters."""
    channel, letters = rabbit.channel, rabbit.queue()
    work, other = rabbit.queue(kind, x_dead_letter_exchange="dead"), rabbit.queue()
    for exchange in ("orders", "dead"):
        channel.exchange_declare(exchange, "topic", durable=True)
    for queue, exchange in ((work, "orders"), (other, "orders"), (letters, "dead")):
        channel.queue_bind(queue, exchange, "order.#")
    for n in range(number):
        what = pika.BasicProperties(headers={"CC": [COPY], "app": "orders"}, delivery_mode=2)
        channel.basic_publish("orders", KEY, b"order %d" % n, what, mandatory=True)
    rabbit.reject(work, number)
    rabbit.wait_for(letters, number)
    channel.queue_purge(other)
    return letters, work


@pytest.fixture
def shop(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> Iterator[Callable[..., Shop]]:
    def make(number: int, kind: str = "classic", die: Die = died, **settings: str) -> Shop:
        letters, work = die(rabbit, number, kind)
        broker = rabbit.broker(**settings)
        (tmp_path / "dlq.toml").write_text(
            f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{broker.url}"\npassword_env = "{PASSWORD_VARIABLE}"\n'
            f'management_url = "{broker.management_url}"\n'
            f'[sources.orders]\nbroker = "shop"\nqueue = "{letters}"\nmode = "drain"\n'
            f"[replay]\nwindow = {WINDOW}\n"
        )
        done = dlq("pull", "-o", "json")
        assert (done.code, done.json["sources"][0]["captured"]) == (0, number), done.err
        return Shop(rabbit, tmp_path, work, dlq, letters)

    yield make
    os.environ.pop(PASSWORD_VARIABLE, None)


def once(shop: Shop, plan: str) -> None:
    """Every letter of the plan had its effect, once."""
    effects, letters = shop.effects(), Counter(shop.letters(plan))
    assert (effects - letters, letters - effects) == ({}, {}), "too often, and never"


def look_and_decide(shop: Shop, plan: str) -> None:
    """The operator looks at the queue: what lies there was sent."""
    arrived = shop.arrived()
    doubtful = shop.dlq("query", "select record_id, state from replays where state = 'in_doubt'").rows
    words = [word for row in doubtful if row["record_id"] in arrived for word in ("--sent", row["record_id"])]
    done = shop.dlq("replay", "reconcile", plan, *words, "--all-not-sent", "-o", "json")
    assert (done.code, done.json["resolved"]["unknown"]) == (0, 0), done.err


def test_letters_go_back_to_the_queue_where_they_died_once(shop: Callable[..., Shop]) -> None:
    here = shop(300)
    plan = here.plan()
    done = here.dlq("replay", "apply", plan, "-o", "json")
    assert (done.code, done.json["sent"], done.json["states"]["confirmed"]) == (0, 300, 300)
    again = here.dlq("replay", "apply", plan, "-o", "json")
    assert (again.code, again.json["sent"], again.json["skipped"]) == (0, 0, 300)
    verified = here.dlq("verify", "-o", "json")
    assert (verified.code, verified.json["balanced"]) == (0, True)
    once(here, plan)


def test_what_no_queue_takes_is_returned_and_said(shop: Callable[..., Shop]) -> None:
    here = shop(20)
    gone = here.rabbit.queue()
    plan = here.plan("--to", f"queue:{gone}")
    here.rabbit.channel.queue_delete(gone)
    done = here.dlq("replay", "apply", plan, "-o", "json")
    assert (done.code, done.json["states"]["returned"], done.json["states"]["confirmed"]) == (3, 20, 0)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_kill_minus_nine_in_mid_apply_is_resolved_by_the_witness(
    shop: Callable[..., Shop], kind: str
) -> None:
    here = shop(1000, kind)
    wait_until_the_node_is_no_newcomer(here.rabbit)
    plan = here.plan("--witness")
    running = here.start("replay", "apply", plan, dies_holding=(1, 1))
    assert running.wait(PATIENCE) == -signal.SIGKILL, running.communicate()

    resumed = here.dlq("replay", "apply", plan, "-o", "json")
    assert resumed.code == 6
    assert 0 < resumed.json["states"]["in_doubt"] <= WINDOW
    assert here.dlq("verify").code == 6
    resolved = here.dlq("replay", "reconcile", plan, "-o", "json")
    unknown = resolved.json["resolved"]["unknown"]
    assert resolved.code == (6 if unknown else 0), resolved.err
    if kind == "quorum" and here.rabbit.version < (4,):
        assert resolved.json["resolved"]["sent"] == 0
        look_and_decide(here, plan)
    else:
        assert unknown == 0
    last = here.dlq("replay", "apply", plan, "-o", "json")
    assert (last.code, last.json["states"]["confirmed"]) == (0, 1000), last.err
    assert here.dlq("verify").code == 0
    once(here, plan)


@pytest.mark.parametrize("rate", [(), ("--rate", "500")], ids=["as fast as it goes", "500 a second"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_kill_minus_nine_leaves_in_doubt_only_what_was_written(
    shop: Callable[..., Shop], kind: str, rate: tuple[str, ...]
) -> None:
    here = shop(1000, kind)
    plan = here.plan(*rate)
    running = here.start("replay", "apply", plan, dies_holding=(1 if rate else 5, 1))
    assert running.wait(PATIENCE) == -signal.SIGKILL, running.communicate()
    died = json.loads((here.folder / DIED).read_text())
    claimed = here.dlq("query", "select count(*) n from replays where state = 'sending'").rows[0]["n"]

    resolved = here.dlq("replay", "reconcile", plan, "-o", "json").json["resolved"]
    rows = here.dlq("query", "select record_id, state from replays").rows
    never = {row["record_id"] for row in rows if row["state"] == "planned"}
    arrived = here.arrived()
    assert never & arrived == set()
    assert {row["record_id"] for row in rows if row["state"] == "confirmed"} <= arrived
    assert resolved["sent"] + resolved["not_sent"] + resolved["unknown"] == claimed
    assert resolved["not_sent"] == len(never) > len(died["held"]) > 0
    assert here.ids(plan, died["held"]) <= never
    doubted = {row["record_id"] for row in rows if row["state"] == "in_doubt"}
    assert doubted == here.ids(plan, died["written"])
    assert len(doubted) == resolved["unknown"] <= WINDOW
    look_and_decide(here, plan)
    assert here.dlq("replay", "apply", plan).code == 0
    once(here, plan)


def test_the_witness_leaves_nothing_behind(shop: Callable[..., Shop]) -> None:
    here = shop(50)
    plan = here.plan("--witness")
    assert here.dlq("replay", "apply", plan).code == 0
    node = here.rabbit.node
    left = [
        item["name"]
        for kind in ("queues", "exchanges")
        for item in json.loads(json.dumps(node.api("GET", kind, here.rabbit.vhost)))
        if plan in item["name"]
    ]
    assert left == []


def test_an_interrupt_is_130_and_leaves_nothing_in_doubt(shop: Callable[..., Shop]) -> None:
    here = shop(500)
    plan = here.plan("--rate", "100")
    running = here.start("replay", "apply", plan)
    here.wait_for(15, running)
    running.terminate()
    out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert json.loads(out)["states"]["in_doubt"] == 0
    assert set(here.states(plan)) == {"confirmed", "planned"}


@on_private_nodes
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_broker_killed_in_mid_window_keeps_all_it_confirmed(shop: Callable[..., Shop], kind: str) -> None:
    here = shop(2000, kind)
    plan = here.plan("--witness", "--rate", "1000")  # it has work for a while whenever the node dies
    running = here.start("replay", "apply", plan)
    here.wait_for(300, running)
    here.rabbit.node.kill()
    with contextlib.suppress(AMQPError):
        here.rabbit.channel.connection.close()
    out, err = running.communicate(timeout=PATIENCE)
    states = json.loads(out)["states"]
    assert running.returncode == (6 if states["in_doubt"] else 4), err
    assert 0 <= states["in_doubt"] <= WINDOW
    assert 300 - states["in_doubt"] <= states["confirmed"] < 2000  # what has arrived is not confirmed yet
    here.rabbit.node.start()
    here.rabbit.channel = here.rabbit.connect()

    # A witness proves nothing after a restart of the node.
    resolved = here.dlq("replay", "reconcile", plan, "-o", "json")
    code = 6 if states["in_doubt"] else 0
    assert (resolved.code, resolved.json["resolved"]["unknown"]) == (code, states["in_doubt"])
    look_and_decide(here, plan)
    assert here.dlq("replay", "apply", plan).code == 0
    once(here, plan)


def own_exchanges(shop: Shop) -> list[str]:
    """Exchanges that a plan has left, or has now."""
    listed = json.loads(json.dumps(shop.rabbit.node.api("GET", "exchanges", shop.rabbit.vhost)))
    return [one["name"] for one in listed if one["name"].startswith("dlq.")]


@on_private_nodes
@pytest.mark.parametrize("proof", [(), ("--witness",)], ids=["", "with a witness"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_consumer_sees_the_key_that_it_saw_and_a_second_death_comes_back(
    shop: Callable[..., Shop], kind: str, proof: tuple[str, ...]
) -> None:
    here = shop(30, kind, died_by_topic)
    planned = here.dlq("replay", "plan", "--any-advice", *proof, "-o", "json")
    assert planned.json["targets"] == {f"queue:{here.work}": 30}
    [said] = [text for text in planned.json["warnings"] if "an exchange of the plan's own" in text]
    assert said.endswith("instead of orders")
    applied = here.dlq("replay", "apply", planned.json["plan"], "-o", "json")
    assert (applied.code, applied.json["states"]["confirmed"], own_exchanges(here)) == (0, 30, [])

    channel, seen = here.rabbit.channel, Counter[tuple[str, str]]()
    for _ in range(30):
        method, properties, _ = channel.basic_get(here.work)
        seen[method.routing_key, *properties.headers["CC"]] += 1
        channel.basic_reject(method.delivery_tag, requeue=False)
    assert seen == {(KEY, COPY): 30}
    here.rabbit.wait_for(here.dead, 30)
    others = [one["name"] for one in here.rabbit.node.api("GET", "queues", here.rabbit.vhost)]
    assert sum(map(here.rabbit.depth, others)) == 30, "no other queue got one"
    assert here.dlq("pull", "-o", "json").json["sources"][0]["captured"] == 30
    assert here.dlq("ls", "--where", "laps = 1").rows[29:]
    again = here.dlq("replay", "plan", "--any-advice", "--where", "laps = 1", "-o", "json")
    assert here.dlq("replay", "apply", again.json["plan"]).code == 0
    assert {method.routing_key for method, _, _ in here.rabbit.take(here.work, 30)} == {KEY}


@on_private_nodes
def test_who_may_make_no_exchange_hears_that_a_second_death_leads_nowhere(shop: Callable[..., Shop]) -> None:
    here = shop(30, die=died_by_topic)
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    here.rabbit.node.api("PUT", "permissions", here.rabbit.vhost, "guest", **rights)
    planned = here.dlq("replay", "plan", "--any-advice", "-o", "json").json
    assert (planned["targets"], planned["left_out"]) == ({}, {"risky": 30})
    [why] = [text for text in planned["warnings"] if text.startswith("left out as risky")]
    assert f"the dead-letter exchange dead takes the key {here.work} nowhere; name the target" in why
    named = here.dlq("replay", "plan", "--any-advice", "--to", f"queue:{here.work}", "-o", "json").json
    [said] = [text for text in named["warnings"] if "its name as the key" in text]
    assert "the user may not configure exchanges dlq.replay.*" in said
    assert here.dlq("replay", "apply", named["plan"]).code == 0
    assert {(m.exchange, m.routing_key) for m, _, _ in here.rabbit.take(here.work, 30)} == {("", here.work)}


@on_private_nodes
def test_kill_minus_nine_leaves_no_exchange_behind_the_end_of_a_plan(shop: Callable[..., Shop]) -> None:
    here = shop(1000, die=died_by_topic)
    plan = here.plan()
    running = here.start("replay", "apply", plan, dies_holding=(5, 1))
    assert running.wait(PATIENCE) == -signal.SIGKILL, running.communicate()
    [left] = own_exchanges(here)
    assert left.startswith(f"dlq.replay.{plan}.")
    assert here.dlq("replay", "apply", plan).code == 6
    look_and_decide(here, plan)
    assert here.dlq("replay", "apply", plan).code == 0
    assert own_exchanges(here) == []
    once(here, plan)
