"""The Python consumer of docs/for-consumers.md takes replays of a real RabbitMQ."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit, on_rabbitmq_4, rabbit, rabbit_node

__all__ = ["rabbit", "rabbit_node"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "for-consumers.md"


def consumer(database: sqlite3.Connection, mailed: list[str]) -> Callable[..., None]:
    """The callback that the page's example makes."""
    known: dict[str, Any] = {}
    block = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block is not None
    exec(compile(block[1], PAGE.name, "exec"), known)
    callback: Callable[..., None] = known["consumer"](database, mailed.append)
    return callback


@on_rabbitmq_4
def test_a_replay_is_booked_without_a_mail_and_the_third_lap_is_refused(
    rabbit: Rabbit, tmp_path: Path, dlq: Callable[..., Any]
) -> None:
    letters = rabbit.queue()
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=letters)
    (tmp_path / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{rabbit.broker().url}"\n'
        f'password_env = "{PASSWORD_VARIABLE}"\n'
        f'[sources.orders]\nbroker = "shop"\nqueue = "{letters}"\nmode = "drain"\n'
    )
    database, mailed = sqlite3.connect(":memory:"), list[str]()
    database.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
    database.execute("CREATE TABLE bookings (id TEXT, amount INTEGER)")
    on_message = consumer(database, mailed)

    def take_one() -> None:
        rabbit.wait_for(work, 1)
        on_message(rabbit.channel, *rabbit.channel.basic_get(work))

    def replay() -> None:
        plan = ("replay", "plan", "--where", "true", "--any-advice", "--apply", "--yes")
        for words in (("pull",), plan):
            done = dlq(*words, "-o", "json")
            assert done.code == 0, (words, done.err)

    rabbit.fill(work, 1, b'{"id": "first", "amount": 5}')
    rabbit.reject(work, 1)
    replay()
    take_one()
    assert database.execute("SELECT * FROM bookings").fetchall() == [("first", 5)]

    rabbit.fill(work, 1, b'{"id": "second", "amount": 7}')
    for _lap in range(3):
        rabbit.reject(work, 1)
        rabbit.wait_for(letters, 1)
        replay()
    take_one()
    rabbit.wait_for(letters, 1)
    assert database.execute("SELECT * FROM bookings").fetchall() == [("first", 5)]
    assert mailed == []
