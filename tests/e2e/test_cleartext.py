"""The warning of a password that leaves this host in the clear, as a user of the command sees it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIGURATION = """
[brokers.b]
kind = "rabbitmq"
url = "amqp://u@mq.invalid"
password_env = "P"
timeout = "1s"
[sources.one]
broker = "b"
queue = "q"
[sources.two]
broker = "b"
queue = "r"
[ledger]
url = "redis://u@db.invalid/0"
password_env = "P"
"""


def test_it_is_said_once_before_anything_is_sent(dlq: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION)
    said = dlq("pull", P="s3cret")
    warnings = [line for line in said.err.splitlines() if "warning" in line]
    assert warnings == [
        "dlq: warning: brokers.b.url: the password goes to mq.invalid without TLS; write amqps://"
    ]
    assert said.code == 4
    assert "s3cret" not in said.err
