"""What a plan promises on a real RabbitMQ: it sends what was planned, to where it stays."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit

Dlq = Callable[..., Any]


@dataclass
class Workspace:
    """Letters that were rejected from `work` and drained."""

    rabbit: Rabbit
    folder: Path
    work: str
    letters: str
    dlq: Dlq

    def __call__(self, *words: str) -> Any:
        return self.dlq(*words, "-o", "json")

    def plan(self, *words: str) -> Any:
        done = self("replay", "plan", "--any-advice", *words)
        assert done.code == 0, done.err
        return done.json


@pytest.fixture
def workspace(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> Iterator[Callable[..., Workspace]]:
    def make(number: int = 3, headers: dict[str, Any] | None = None, **arguments: Any) -> Workspace:
        letters = rabbit.queue()
        arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": letters, **arguments}
        work = rabbit.queue("classic", **arguments)
        rabbit.fill(work, number, b"order %d", message_id="m", headers=headers or {})
        rabbit.reject(work, number)
        rabbit.wait_for(letters, number)
        broker = rabbit.broker()
        (tmp_path / "dlq.toml").write_text(
            f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{broker.url}"\npassword_env = "{PASSWORD_VARIABLE}"\n'
            f'management_url = "{broker.management_url}"\n'
            f'[sources.orders]\nbroker = "shop"\nqueue = "{letters}"\nmode = "drain"\n'
        )
        found = Workspace(rabbit, tmp_path, work, letters, dlq)
        pulled = found("pull")
        assert (pulled.code, pulled.json["sources"][0]["captured"]) == (0, number), pulled.err
        return found

    yield make
    os.environ.pop(PASSWORD_VARIABLE, None)


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
    workspace: Callable[..., Workspace], kind: str, told: str
) -> None:
    arguments, said, room = LOSING[kind]
    shop = workspace(headers={"app": "orders"})
    target = shop.rabbit.queue("classic", **arguments)
    if arguments != {"x_message_ttl": 0}:
        shop.rabbit.fill(target, 4, b"living")
    place = shop.folder / "dlq.toml"
    if told == "by declares":
        lines = place.read_text().splitlines()
        place.write_text("\n".join(line for line in lines if "management_url" not in line))
    _pretend_origin(shop, target)
    made = shop.plan()
    assert made["left_out"]["risky"] == 3 - made["selected"]
    if room is not None:
        assert made["selected"] == room
    assert re.search(said, " ".join(made["warnings"]))
    assert shop.plan("--to", f"queue:{target}")["selected"] == 3


def _pretend_origin(shop: Workspace, target: str) -> None:
    """The analysis says that they died there: a queue with limits would have dropped them itself."""
    place = shop.folder / "dlq.toml"
    [file] = (shop.folder / "archive" / "analyses").rglob("verdicts*/*.parquet")
    table = pq.read_table(file)
    at = table.schema.get_field_index("origin")
    names = pa.array([target] * len(table), table.schema.field("origin").type)
    pq.write_table(table.set_column(at, table.schema.field("origin"), names), file)
    assert place.exists()


def test_what_was_refused_into_a_dead_letter_queue_is_not_sent_again(
    workspace: Callable[..., Workspace],
) -> None:
    """It is a dead letter of its own there: a nack is no proof of absence."""
    shop = workspace()
    again = shop.rabbit.queue()
    way = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": again}
    target = shop.rabbit.queue("classic", x_max_length=1, x_overflow="reject-publish-dlx", **way)
    shop.rabbit.fill(target, 1, b"living")
    plan = shop.plan("--to", f"queue:{target}")
    applied = shop("replay", "apply", plan["plan"])
    assert (applied.code, applied.json["states"]["refused"]) == (3, 3)
    shop.rabbit.wait_for(again, 3)
    assert shop("replay", "apply", plan["plan"]).json["sent"] == 0
    assert shop.plan("--to", f"queue:{target}")["left_out"] == {"refused": 3}
    assert shop.rabbit.depth(again) == 3


def test_a_queue_that_ends_with_its_consumers_is_no_target(workspace: Callable[..., Workspace]) -> None:
    shop = workspace()
    target = shop.rabbit.channel.queue_declare(f"{shop.work}-own", auto_delete=True).method.queue
    shop.rabbit.wait_for_statistics(target)
    _pretend_origin(shop, target)
    made = shop.plan()
    assert (made["selected"], made["left_out"]) == (0, {"temporary": 3})
    assert f"queue {target} is auto-delete: it ends with its consumers" in " ".join(made["warnings"])
