"""The warning of a password that leaves this host in the clear, as a user of the command sees it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
url = "postgresql://u@db.invalid/x"
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


@pytest.mark.parametrize("command", [("ls",), ("verify",), ("retain",), ("ledger", "move")])
def test_commands_that_only_ask_the_ledger_say_it_of_that(
    dlq: Callable[..., Any], tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION)
    said = dlq(*command, P="s3cret")
    assert [line for line in said.err.splitlines() if "warning" in line] == [
        "dlq: warning: ledger.url: the password goes to db.invalid without TLS; "
        "write ?sslmode=verify-full (and &sslrootcert=FILE)"
    ]
    assert "s3cret" not in said.err
