"""One source for many RabbitMQ queues: `queue = "*.dlq"`, with the installed command."""

import json
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_private_nodes, request
from support.waiting import PATIENCE

from dlq.connectors.rabbitmq.look.management import Management
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector

Dlq = Callable[..., Any]


def configure(rabbit: Rabbit, folder: Path, queue: str = "*.dlq", managed: bool = True) -> None:
    broker = rabbit.broker()
    management = f"management_url = {json.dumps(broker.management_url)}\n" if managed else ""
    (folder / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "rabbitmq"\nurl = {json.dumps(broker.url)}\n'
        f'password_env = "{PASSWORD_VARIABLE}"\n{management}'
        f'[sources.all]\nbroker = "shop"\nqueue = {json.dumps(queue)}\n'
    )


def dead(rabbit: Rabbit, name: str, number: int, kind: str = "classic") -> None:
    """Letters that their consumer rejected: work queue NAME, dead letters in NAME.dlq."""
    channel = rabbit.channel
    channel.queue_declare(f"{name}.dlq", durable=True, arguments={"x-queue-type": kind})
    onward = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dlq"}
    channel.queue_declare(name, durable=True, arguments=onward)
    rabbit.fill(name, number)
    rabbit.reject(name, number)
    rabbit.wait_for(f"{name}.dlq", number)


def in_the_archive(dlq: Dlq) -> Counter[str]:
    done = dlq("query", "select dead_letter_queue q from letters", "-o", "json")
    assert done.code == 0, done.err
    rows = done.json["rows"] if isinstance(done.json, dict) else done.json
    return Counter(row["q"] for row in rows)


@on_private_nodes
def test_every_matching_queue_is_looked_at_pulled_and_replayed(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    dead(rabbit, "orders", 30)
    dead(rabbit, "shop.bills", 7, "quorum")
    dead(rabbit, "empty", 0)
    rabbit.channel.queue_declare("log.dlq", durable=True, arguments={"x-queue-type": "stream"})
    rabbit.channel.queue_declare("mine.dlq", exclusive=True)
    configure(rabbit, tmp_path)

    looked = dlq("doctor", "-o", "json")
    text = looked.out + looked.err
    assert "empty.dlq, orders.dlq, shop.bills.dlq" in text
    assert "log.dlq (a stream), mine.dlq (exclusive)" in text

    pulled = dlq("pull", "--mode", "drain", "-o", "json")
    assert pulled.code == 0, pulled.err
    assert pulled.json["sources"][0]["captured"] == pulled.json["sources"][0]["acknowledged"] == 37
    assert "3 queues: empty.dlq (0), orders.dlq (30), shop.bills.dlq (7)" in pulled.err
    assert "log.dlq (a stream), mine.dlq (exclusive)" in pulled.err
    assert in_the_archive(dlq) == {"orders.dlq": 30, "shop.bills.dlq": 7}
    assert rabbit.depth("orders.dlq") == rabbit.depth("shop.bills.dlq") == 0


@on_private_nodes
def test_a_queue_that_is_called_like_a_pattern_is_drained_alone(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    """A tenant may call one so; each of the others would be emptied with it."""
    for queue in ("*.dlq", "payments.dlq"):
        rabbit.channel.queue_declare(queue, durable=True)
        rabbit.publish(queue, [b"one"])
        rabbit.wait_for(queue, 1)
    configure(rabbit, tmp_path, queue="other")
    assert dlq("discover", "--write").code == 0
    (name,) = (
        n
        for n, s in tomllib.loads((tmp_path / "dlq.toml").read_text())["sources"].items()
        if "[" in s["queue"]
    )

    pulled = dlq("pull", name, "--mode", "drain", "-o", "json")
    assert pulled.code == 0, pulled.err
    assert f"{name}: [*].dlq takes the letters of *.dlq (" in pulled.err.splitlines()[0]
    assert (rabbit.depth("*.dlq"), rabbit.depth("payments.dlq")) == (0, 1)


@on_private_nodes
def test_a_copy_leaves_every_letter_and_a_drain_adds_none_twice(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    dead(rabbit, "orders", 30)
    dead(rabbit, "bills", 7)
    configure(rabbit, tmp_path)
    assert dlq("pull", "--mode", "copy").code == 0
    rabbit.wait_for("orders.dlq", 30)
    rabbit.wait_for("bills.dlq", 7)
    limited = dlq("pull", "--mode", "drain", "--limit", "10", "-o", "json")
    assert (limited.json["sources"][0]["captured"], limited.json["sources"][0]["acknowledged"]) == (0, 10)
    assert (rabbit.depth("bills.dlq"), rabbit.depth("orders.dlq")) == (0, 27)
    assert dlq("pull", "--mode", "drain").code == 0
    assert in_the_archive(dlq) == {"orders.dlq": 30, "bills.dlq": 7}


@on_private_nodes
def test_letters_of_a_pattern_go_back_where_each_died(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    dead(rabbit, "orders", 3)
    dead(rabbit, "bills", 2)
    configure(rabbit, tmp_path)
    assert dlq("pull", "--mode", "drain").code == 0
    plan = dlq("replay", "plan", "--any-advice", "-o", "json")
    assert plan.code == 0, plan.err
    applied = dlq("replay", "apply", plan.json["plan"])
    assert applied.code == 0, applied.err
    assert (rabbit.depth("orders"), rabbit.depth("bills")) == (3, 2)
    assert dlq("replay", "status", plan.json["plan"], "-o", "json").json["states"]["confirmed"] == 5


@on_private_nodes
def test_a_killed_pull_of_a_pattern_loses_and_doubles_nothing(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    numbers = {"a.dlq": 12_000, "b.dlq": 12_000, "c.dlq": 12_000}
    for name, number in numbers.items():
        rabbit.channel.queue_declare(name, durable=True)
        rabbit.fill(name, number)
    configure(rabbit, tmp_path)
    for left in (30_000, 15_000):
        running = preloaded.start(["pull", "--mode", "drain"], tmp_path)
        deadline = time.monotonic() + PATIENCE
        while sum(map(rabbit.depth, numbers)) > left and running.poll() is None:
            assert time.monotonic() < deadline
        running.kill()
        running.wait()
    deadline = time.monotonic() + PATIENCE
    while (done := dlq("pull", "--mode", "drain", "-o", "json")).json["sources"][0]["snapshot"]:
        assert time.monotonic() < deadline, done.err
    assert in_the_archive(dlq) == numbers


def test_no_match_is_one_line(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    configure(rabbit, tmp_path, "*.nothing")
    done = dlq("pull")
    assert done.code == 4
    assert "brokers.shop has no queue that matches '*.nothing'" in done.err
    assert "Traceback" not in done.err


def test_a_star_in_a_name_is_written_in_brackets(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    for name in ("a*b", "aab"):
        rabbit.channel.queue_declare(name, durable=True)
        rabbit.publish(name, [b"x"])
        rabbit.wait_for(name, 1)
    configure(rabbit, tmp_path, "a[*]b")
    assert dlq("pull", "--mode", "drain").code == 0
    assert (rabbit.depth("a*b"), rabbit.depth("aab")) == (0, 1)


@pytest.mark.parametrize("words", [["doctor"], ["pull"], ["ls"]])
def test_without_management_the_configuration_is_refused(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq, words: list[str]
) -> None:
    configure(rabbit, tmp_path, managed=False)
    done = dlq(*words)
    assert done.code == 2
    assert "set brokers.shop.management_url" in done.err
    assert len(done.err.splitlines()) == 1


@on_private_nodes
def test_one_queue_that_cannot_be_read_does_not_hold_up_the_others(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    for name in ("a", "held", "locked", "z"):
        dead(rabbit, name, 3)
    limit = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    rabbit.channel.queue_declare("tight.dlq", durable=True, arguments=limit)
    rabbit.fill("tight.dlq", 2)
    holder = rabbit.connect()
    holder.basic_qos(prefetch_count=1)
    holder.basic_consume("held.dlq", lambda *_: None, exclusive=True)
    deadline = time.monotonic() + PATIENCE
    while not rabbit.node.api("GET", "consumers", rabbit.vhost):
        assert time.monotonic() < deadline, "the management API does not show the consumer"
        time.sleep(0.1)
    rabbit.node.api("PUT", "users", "reader", password="guest", tags="administrator")
    may_read = r"^(a|held|z|tight)\.dlq$"
    rabbit.node.api("PUT", "permissions", rabbit.vhost, "reader", configure="^$", write="^$", read=may_read)
    configure(rabbit, tmp_path)
    settings = tmp_path / "dlq.toml"
    settings.write_text(settings.read_text().replace("guest@", "reader@"))

    names = ("held.dlq", "locked.dlq", "tight.dlq")
    looked = dlq("doctor", "-o", "json")
    assert looked.code == 3
    left_out = looked.json["sources"][0]["leaves_out"]["drain"]
    assert [name for name in names if name not in left_out] == [], left_out
    assert not any(name in left_out for name in ("a.dlq", "z.dlq"))

    pulled = dlq("pull", "--mode", "drain", "-o", "json")
    assert pulled.code == 3, pulled.err
    assert in_the_archive(dlq) == {"a.dlq": 3, "z.dlq": 3}
    assert all(f"not read: {name}: " in pulled.err for name in names)
    assert "another connection holds it exclusively" in pulled.err
    assert (rabbit.depth("locked.dlq"), rabbit.depth("tight.dlq")) == (3, 2)
    holder.connection.close()


@on_private_nodes
def test_a_pattern_of_unreadable_queues_alone_is_an_error(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    dead(rabbit, "a", 3)
    holder = rabbit.connect()
    holder.basic_qos(prefetch_count=1)
    holder.basic_consume("a.dlq", lambda *_: None, exclusive=True)
    configure(rabbit, tmp_path)
    done = dlq("pull", "--mode", "drain")
    assert done.code == 4
    assert "another connection holds it exclusively" in done.err
    holder.connection.close()


def test_the_management_api_is_asked_for_all_queues_once(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.dlq", "b.dlq", "c.dlq"):
        rabbit.channel.queue_declare(name, durable=True)
    asked: list[str] = []
    get_all = Management.get_all

    def counting(self: Management, *path: str, **query: str) -> Any:
        asked.append(path[0])
        return get_all(self, *path, **query)

    monkeypatch.setattr(Management, "get_all", counting)
    connector = RabbitConnector(rabbit.broker())
    connector.read(request("*.dlq")).close()
    assert asked.count("queues") == 1
    asked.clear()
    connector.inspect(request("*.dlq").source)
    assert asked.count("queues") == 1
