"""Back into a real RabbitMQ with the installed command: whatever breaks, each letter has one effect."""

import contextlib
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pika.exceptions import AMQPError
from support import preloaded
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_private_nodes
from support.brokers.rabbitmq.letters import (
    headers_of_all,
    settled_depth,
    wait_until_the_node_is_no_newcomer,
)
from support.dying import DIED
from support.waiting import PATIENCE, eventually
from support.wire_builders import configure_rabbitmq

from dlq.archive.storage.store import LocalStore
from dlq.replay.plans import planfile

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

    def planned(self, *words: str) -> Any:
        """What is said of a plan that is made."""
        done = self.dlq("replay", "plan", "--any-advice", *words, "-o", "json")
        assert done.code == 0, done.err
        return done.json

    def plan(self, *words: str) -> str:
        return str(self.planned(*words)["plan"])

    def start(self, *words: str, dies_holding: Sequence[int] = ()) -> preloaded.Running:
        """The command in the background."""
        return preloaded.start([*words, "-o", "json"], self.folder, dies_holding=dies_holding)

    def die(self, *words: str, holding: Sequence[int]) -> None:
        """The command until its kill -9; see `dying.holding`."""
        running = self.start(*words, dies_holding=holding)
        assert running.wait(PATIENCE) == -signal.SIGKILL, running.communicate()

    def ids(self, plan: str, numbers: Sequence[int]) -> set[str]:
        """Record ids of letters of a plan."""
        letters = self.letters(plan)
        return {letters[number] for number in numbers}

    def wait_for(self, number: int, running: preloaded.Running) -> None:
        eventually(lambda: self.rabbit.depth(self.work) >= number or running.poll() is not None)
        assert running.poll() is None, running.communicate()

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
    def make(number: int, kind: str = "classic", die: Die = died) -> Shop:
        letters, work = die(rabbit, number, kind)
        configure_rabbitmq(tmp_path, rabbit, letters, f"[replay]\nwindow = {WINDOW}\n")
        done = dlq("pull", "-o", "json")
        assert (done.code, done.json["sources"][0]["captured"]) == (0, number), done.err
        return Shop(rabbit, tmp_path, work, dlq, letters)

    yield make
    os.environ.pop(PASSWORD_VARIABLE, None)


def once(shop: Shop, plan: str) -> None:
    """Every letter of the plan had its effect, once."""
    effects, letters = shop.effects(), Counter(shop.letters(plan))
    assert (effects - letters, letters - effects) == ({}, {}), "too often, and never"


def names(shop: Shop, kind: str) -> list[str]:
    """Of the queues or exchanges that there are."""
    found: Any = shop.rabbit.node.api("GET", kind, shop.rabbit.vhost)
    return [str(one["name"]) for one in found]


def own_exchanges(shop: Shop) -> list[str]:
    """Exchanges that a plan has left, or has now."""
    return [name for name in names(shop, "exchanges") if name.startswith("dlq.")]


def look_and_decide(shop: Shop, plan: str) -> None:
    """The operator looks at the queue, when nothing comes any more: what lies there was sent."""
    settled_depth(shop.rabbit, shop.work)
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
    here.die("replay", "apply", plan, holding=(1, 1))
    resumed = here.dlq("replay", "apply", plan, "-o", "json")
    assert resumed.code == 6
    assert 0 < resumed.json["states"]["in_doubt"] <= WINDOW
    assert here.dlq("verify").code == 6

    def is_resolved() -> bool:
        resolved = here.dlq("replay", "reconcile", plan, "-o", "json")
        assert resolved.code == (6 if resolved.json["resolved"]["unknown"] else 0), resolved.err
        assert resolved.json["resolved"]["sent"] == 0 or not may_lack
        return resolved.code == 0

    if may_lack := kind == "quorum" and here.rabbit.version < (4,):
        is_resolved()
        look_and_decide(here, plan)
    else:
        eventually(is_resolved)  # a busy broker may still name the client that is dead
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
    here.die("replay", "apply", plan, holding=(1 if rate else 5, 1))
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


def test_an_interrupt_is_130_and_leaves_nothing_in_doubt(shop: Callable[..., Shop]) -> None:
    here = shop(500)
    plan = here.plan("--rate", "20")  # it has work for a while whenever the signal comes
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
    plan = here.plan("--witness", "--rate", "300")  # it has work for a while whenever the node dies
    running = here.start("replay", "apply", plan)
    here.rabbit.node.write_to_disk()
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


@on_private_nodes
@pytest.mark.parametrize("proof", [(), ("--witness",)], ids=["", "with a witness"])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_consumer_sees_the_key_that_it_saw_and_a_second_death_comes_back(
    shop: Callable[..., Shop], kind: str, proof: tuple[str, ...]
) -> None:
    here = shop(30, kind, died_by_topic)
    planned = here.planned(*proof)
    assert planned["targets"] == {f"queue:{here.work}": 30}
    [said] = [text for text in planned["warnings"] if "an exchange of the plan's own" in text]
    assert said.endswith("instead of orders")
    applied = here.dlq("replay", "apply", planned["plan"], "-o", "json")
    assert (applied.code, applied.json["states"]["confirmed"], own_exchanges(here)) == (0, 30, [])
    assert not [name for name in names(here, "queues") if planned["plan"] in name], "no witness is left"
    channel, seen = here.rabbit.channel, Counter[tuple[str, str]]()
    for _ in range(30):
        method, properties, _ = channel.basic_get(here.work)
        seen[method.routing_key, *properties.headers["CC"]] += 1
        channel.basic_reject(method.delivery_tag, requeue=False)
    assert seen == {(KEY, COPY): 30}
    here.rabbit.wait_for(here.dead, 30)
    assert sum(map(here.rabbit.depth, names(here, "queues"))) == 30, "no other queue got one"
    assert here.dlq("pull", "-o", "json").json["sources"][0]["captured"] == 30
    assert here.dlq("ls", "--where", "laps = 1").rows[29:]
    assert here.dlq("replay", "apply", here.plan("--where", "laps = 1")).code == 0
    assert {method.routing_key for method, _, _ in here.rabbit.take(here.work, 30)} == {KEY}


@on_private_nodes
def test_who_may_make_no_exchange_hears_that_a_second_death_leads_nowhere(shop: Callable[..., Shop]) -> None:
    here = shop(30, die=died_by_topic)
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    here.rabbit.node.api("PUT", "permissions", here.rabbit.vhost, "guest", **rights)
    planned = here.planned()
    assert (planned["targets"], planned["left_out"]) == ({}, {"risky": 30})
    [why] = [text for text in planned["warnings"] if text.startswith("left out as risky")]
    assert f"the dead-letter exchange dead takes the key {here.work} nowhere; name the target" in why
    named = here.planned("--to", f"queue:{here.work}")
    [said] = [text for text in named["warnings"] if "its name as the key" in text]
    assert "the user may not configure exchanges dlq.replay.*" in said
    assert here.dlq("replay", "apply", named["plan"]).code == 0
    assert {(m.exchange, m.routing_key) for m, _, _ in here.rabbit.take(here.work, 30)} == {("", here.work)}


@on_private_nodes
def test_kill_minus_nine_leaves_no_exchange_behind_the_end_of_a_plan(shop: Callable[..., Shop]) -> None:
    here = shop(1000, die=died_by_topic)
    plan = here.plan()
    here.die("replay", "apply", plan, holding=(5, 1))
    [left] = own_exchanges(here)
    assert left.startswith(f"dlq.replay.{plan}.")
    assert here.dlq("replay", "apply", plan).code == 6
    look_and_decide(here, plan)
    assert here.dlq("replay", "apply", plan).code == 0
    assert own_exchanges(here) == []
    once(here, plan)


FULL = {"x_max_length": 5}
LOSING = {
    "drops its oldest": (FULL, r"holds 4 letters and takes 5 letters \(drop-head\): each one more drops", 1),
    "has few bytes": ({"x_max_length_bytes": 26}, r"takes 26 bytes \(drop-head\): each one more drops", None),
    "has no time": ({"x_message_ttl": 0}, r"ends what nobody takes at once \(message-ttl 0\)", 0),
    "refuses into its dead-letter queue": ({**FULL, "x_overflow": "reject-publish-dlx"},
     r"takes 5 letters \(reject-publish-dlx\): each one more is refused and dead-lettered again", 1),
}  # fmt: skip


@pytest.mark.parametrize("told", ["by management", "by declares"])
@pytest.mark.parametrize("kind", LOSING)
def test_a_target_that_would_lose_letters_is_risky_with_figures(
    shop: Callable[..., Shop], kind: str, told: str
) -> None:
    arguments, said, room = LOSING[kind]
    here = shop(3)
    target = here.rabbit.queue("classic", **arguments)
    if arguments != {"x_message_ttl": 0}:
        here.rabbit.fill(target, 4, b"living")
    if told == "by declares":
        configure_rabbitmq(here.folder, here.rabbit, here.dead, managed=False)
    pretend_origin(here, target)
    made = here.planned()
    assert made["left_out"]["risky"] == 3 - made["selected"]
    if room is not None:
        assert made["selected"] == room
    assert re.search(said, " ".join(made["warnings"]))
    assert here.planned("--to", f"queue:{target}")["selected"] == 3


def pretend_origin(here: Shop, target: str) -> None:
    """The analysis says that they died there: a queue with limits would have dropped them itself."""
    [file] = (here.folder / "archive" / "analyses").rglob("verdicts*/*.parquet")
    table = pq.read_table(file)
    at, field = table.schema.get_field_index("origin"), table.schema.field("origin")
    pq.write_table(table.set_column(at, field, pa.array([target] * len(table), field.type)), file)


def test_what_was_refused_into_a_dead_letter_queue_is_not_sent_again(shop: Callable[..., Shop]) -> None:
    """It is a dead letter of its own there: a nack is no proof of absence."""
    here = shop(3)
    again = here.rabbit.queue()
    way = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": again}
    target = here.rabbit.queue("classic", x_max_length=1, x_overflow="reject-publish-dlx", **way)
    here.rabbit.fill(target, 1, b"living")
    plan = here.plan("--to", f"queue:{target}")
    applied = here.dlq("replay", "apply", plan, "-o", "json")
    assert (applied.code, applied.json["states"]["refused"]) == (3, 3)
    here.rabbit.wait_for(again, 3)
    assert here.dlq("replay", "apply", plan, "-o", "json").json["sent"] == 0
    assert here.planned("--to", f"queue:{target}")["left_out"] == {"refused": 3}
    assert here.rabbit.depth(again) == 3


def test_a_queue_that_ends_with_its_consumers_is_no_target(shop: Callable[..., Shop]) -> None:
    here = shop(3)
    target = here.rabbit.channel.queue_declare(f"{here.work}-own", auto_delete=True).method.queue
    here.rabbit.wait_for_statistics(target)
    pretend_origin(here, target)
    made = here.planned()
    assert (made["selected"], made["left_out"]) == (0, {"temporary": 3})
    assert f"queue {target} is auto-delete: it ends with its consumers" in " ".join(made["warnings"])
