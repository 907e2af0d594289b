"""What a plan promises on a real RabbitMQ: it sends what was planned, to where it stays."""

import os
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
class Desk:
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
def desk(rabbit: Rabbit, tmp_path: Path, dlq: Dlq) -> Iterator[Callable[..., Desk]]:
    def make(number: int = 3, headers: dict[str, Any] | None = None, **arguments: Any) -> Desk:
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
        found = Desk(rabbit, tmp_path, work, letters, dlq)
        pulled = found("pull")
        assert (pulled.code, pulled.json["sources"][0]["captured"]) == (0, number), pulled.err
        return found

    yield make
    os.environ.pop(PASSWORD_VARIABLE, None)


def test_a_body_that_was_changed_after_the_plan_is_refused_and_named(desk: Callable[..., Desk]) -> None:
    shop = desk()
    plan = shop.plan()
    [segment] = (shop.folder / "archive" / "segments").rglob("*.parquet")
    table = pq.read_table(segment)
    bodies = [b"pay the attacker", *table["body"].to_pylist()[1:]]
    at = table.schema.get_field_index("body")
    pq.write_table(table.set_column(at, table.schema.field("body"), pa.array(bodies, pa.binary())), segment)
    applied = shop("replay", "apply", plan["plan"])
    assert (applied.code, applied.json["states"]["refused"], applied.json["sent"]) == (6, 1, 2)
    assert table["record_id"][0].as_py() in applied.err
    assert shop.rabbit.depth(shop.work) == 2
    assert shop("verify").code == 6


def test_a_task_that_its_worker_would_discard_is_risky(desk: Callable[..., Desk]) -> None:
    """Celery's worker logs "Discarding revoked task", and acknowledges it."""
    shop = desk(headers={"task": "charge", "id": "1", "expires": "2020-01-01T00:00:00+00:00"})
    made = shop.plan()
    assert (made["selected"], made["left_out"]) == (0, {"risky": 3})
    [said] = made["warnings"]
    assert "the deadline in its header expires has passed" in said
