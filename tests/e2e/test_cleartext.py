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
url = "postgresql://u@db.invalid/x"
password_env = "P"
"""


def warnings(done: Any) -> list[str]:
    return [line for line in done.err.splitlines() if "warning" in line]


def test_it_is_said_once_before_anything_is_sent(dlq: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION)
    said = dlq("pull", P="s3cret")
    where = "brokers.b.url: the password goes to mq.invalid without TLS; write amqps://"
    assert (said.code, warnings(said)) == (4, [f"dlq: warning: {where}"])
    assert "s3cret" not in said.err


def test_commands_that_only_ask_the_ledger_say_it_of_that(dlq: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text(CONFIGURATION)
    where = "ledger.url: the password goes to db.invalid without TLS"
    safe = "write ?sslmode=verify-full (and &sslrootcert=FILE)"
    for words in ("ls", "verify", "retain", "ledger move"):
        said = dlq(*words.split(), P="s3cret")
        assert warnings(said) == [f"dlq: warning: {where}; {safe}"], words
        assert "s3cret" not in said.err
