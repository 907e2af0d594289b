"""Letters of one message, of which one was sent: the other stays, whichever died first."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rabbitmq.fixtures import Rabbit

pytestmark = pytest.mark.rabbitmq

NUMBERS = range(12)
AT = datetime(2026, 11, 2, 3, 12, 9, tzinfo=UTC)
TRACE = "java.lang.NullPointerException: boom\n\tat shop.Billing.charge(Billing.java:3)"


def fill(rabbit: Rabbit, queue: str, died_at: datetime) -> None:
    """Letters whose death the broker tells in whole seconds."""
    death = {
        "queue": "orders", "reason": "rejected", "exchange": "", "routing-keys": ["orders"], "count": 1,
        "time": died_at,
    }  # fmt: skip
    headers = {"x-death": [death], "x-exception-message": "boom", "x-exception-stacktrace": TRACE}
    for number in NUMBERS:
        rabbit.publish(queue, [b"order %d" % number], message_id=f"m{number}", headers=headers)
    rabbit.wait_for(queue, len(NUMBERS))


def test_a_message_that_was_sent_goes_once_whichever_of_its_letters_died_first(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    dead, work, broker = rabbit.queue(), rabbit.queue(), rabbit.broker()
    (tmp_path / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{broker.url}"\npassword_env = "{broker.password_env}"\n'
        f'[sources.orders]\nbroker = "shop"\nqueue = "{dead}"\nmode = "drain"\n'
    )

    def dlq(*words: str) -> Any:
        done = preloaded.run(["-o", "json", *words], tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def planned(died_at: datetime) -> Any:
        fill(rabbit, dead, died_at)
        assert dlq("pull")["sources"][0]["captured"] == len(NUMBERS)
        return dlq("replay", "plan", "--fixed", "--to", f"queue:{work}")

    dlq("replay", "apply", planned(AT)["plan"])
    assert rabbit.depth(work) == len(NUMBERS)
    again = planned(AT)
    assert (again["selected"], again["left_out"]) == (0, {"replayed": len(NUMBERS), "never": len(NUMBERS)})
    before = planned(AT.replace(second=8))
    assert (before["selected"], before["left_out"]["twin_sent"]) == (0, len(NUMBERS))
    named = dlq("query", f"select min(record_id) as id from letters where dead_at < '{AT}'")[0]["id"]
    assert dlq("replay", "plan", named, "--to", f"queue:{work}")["selected"] == 1
