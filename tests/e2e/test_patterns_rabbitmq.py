"""One source for many RabbitMQ queues: `queue = "*.dlq"`, with the installed command."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_private_nodes

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
        deadline = time.monotonic() + 60
        while sum(map(rabbit.depth, numbers)) > left and running.poll() is None:
            assert time.monotonic() < deadline
        running.kill()
        running.wait()
    deadline = time.monotonic() + 60
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
