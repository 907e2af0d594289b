"""One source for many RabbitMQ queues: `queue = "*.dlq"`, with the installed command."""

import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import preloaded
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes
from support.waiting import eventually
from support.wire_builders import configure_rabbitmq

Dlq = Callable[..., Any]


ALL = "*.dlq"


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
    configure_rabbitmq(tmp_path, rabbit, ALL)

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
    configure_rabbitmq(tmp_path, rabbit, "other")
    assert dlq("discover", "--write").code == 0
    sources = tomllib.loads((tmp_path / "dlq.toml").read_text())["sources"]
    [name] = [name for name, source in sources.items() if "[" in source["queue"]]

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
    configure_rabbitmq(tmp_path, rabbit, ALL)
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
    configure_rabbitmq(tmp_path, rabbit, ALL)
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
    numbers = dict.fromkeys(("a.dlq", "b.dlq", "c.dlq"), 12_000)
    for name, number in numbers.items():
        rabbit.channel.queue_declare(name, durable=True)
        rabbit.fill(name, number)
    configure_rabbitmq(tmp_path, rabbit, ALL)

    def kill_at(left: int) -> None:
        running = preloaded.start(["pull", "--mode", "drain"], tmp_path)
        eventually(lambda: sum(map(rabbit.depth, numbers)) <= left or running.poll() is not None)
        running.kill()
        running.wait()

    kill_at(30_000)
    kill_at(15_000)
    rabbit.wait_until_nobody_holds_any()
    eventually(lambda: not dlq("pull", "-o", "json").json["sources"][0]["snapshot"])
    assert in_the_archive(dlq) == numbers


def test_without_a_match_or_management_it_is_one_line(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    configure_rabbitmq(tmp_path, rabbit, "*.nothing")
    done = dlq("pull")
    assert done.code == 4
    assert "brokers.shop has no queue that matches '*.nothing'" in done.err
    assert "Traceback" not in done.err
    configure_rabbitmq(tmp_path, rabbit, ALL, managed=False)
    for word in ("doctor", "pull", "ls"):
        done = dlq(word)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "set brokers.shop.management_url" in done.err


def held(rabbit: Rabbit, queue: str) -> Any:
    """A consumer that has the queue for itself."""
    holder = rabbit.connect()
    holder.basic_qos(prefetch_count=1)
    holder.basic_consume(queue, lambda *_: None, exclusive=True)
    return holder


@on_private_nodes
def test_one_queue_that_cannot_be_read_does_not_hold_up_the_others(
    rabbit: Rabbit, tmp_path: Path, dlq: Dlq
) -> None:
    for name in ("a", "held", "locked", "z"):
        dead(rabbit, name, 3)
    limit = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    rabbit.channel.queue_declare("tight.dlq", durable=True, arguments=limit)
    rabbit.fill("tight.dlq", 2)
    holder = held(rabbit, "held.dlq")
    eventually(lambda: rabbit.node.api("GET", "consumers", rabbit.vhost))
    rabbit.node.api("PUT", "users", "reader", password="guest", tags="administrator")
    may_read = r"^(a|held|z|tight)\.dlq$"
    rabbit.node.api("PUT", "permissions", rabbit.vhost, "reader", configure="^$", write="^$", read=may_read)
    configure_rabbitmq(tmp_path, rabbit, ALL)
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
    for name, number in (("locked.dlq", 3), ("tight.dlq", 2)):
        rabbit.wait_for(name, number)
    holder.connection.close()


@on_private_nodes
def test_a_pattern_of_unreadable_queues_alone_is_an_error(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> None:
    dead(rabbit, "a", 3)
    holder = held(rabbit, "a.dlq")
    configure_rabbitmq(tmp_path, rabbit, ALL)
    done = dlq("pull", "--mode", "drain")
    assert done.code == 4
    assert "another connection holds it exclusively" in done.err
    holder.connection.close()
