"""A path of the user's that leads to no ordinary file ends a command at once, with one line."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.rows import each_row
from support.waiting import PATIENCE

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.connectors import file, open_connector
from dlq.connectors.base import ReadRequest
from dlq.connectors.external_stores import stores
from dlq.connectors.local import user_files
from dlq.core.brokers import plugin_of
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Evidence, Ledger, Source
from dlq.replay.ledger import open_ledger
from dlq.replay.plans import edits

URLS = {
    "rabbitmq": "amqps://127.0.0.1:1", "activemq": "stomp+tls://127.0.0.1:1",
    "artemis": "ssl://127.0.0.1:1", "rocketmq": "rocketmq+tls://127.0.0.1:1",
    "kafka": "kafka+ssl://127.0.0.1:1",
}  # fmt: skip
PASSWORDS = """
[brokers.shop]
kind = "rabbitmq"
url = "amqp://u@127.0.0.1:1"
password_file = "{}"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
"""
COMMANDS: dict[str, list[str]] = {
    "letters": ["import", "{}"],
    "packed letters": ["import", "{}.gz"],
    "a print": ["import", "--from", "rabbitmqadmin", "{}"],
    "edits": ["replay", "plan", "--edit", "{}"],
    "a client's log": ["analyze", "--client-log", "{}"],
    "a configuration": ["-c", "{}", "ls"],
    "a configuration that is to be written": ["-c", "{}", "discover", "--write"],
    "a password": ["-c", "passwords.toml", "doctor"],
}
KINDS = ("pipe", "socket", "folder", "device")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a file is named and something else lies."""
    monkeypatch.chdir(tmp_path)
    write_segment(LocalStore(str(tmp_path / "archive")), "p-0", [letter(1)])
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("socket")
        os.mkfifo("pipe")
        Path("folder").mkdir()
        Path("device").symlink_to("/dev/zero")
        Path("waits").symlink_to("/proc/kmsg")
        yield tmp_path


def dlq(words: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
    """The command as a process of its own, which may hang: then the test fails."""
    command = [sys.executable, "-c", "from dlq.cli.app import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_says_what_it_was_given_instead_of_a_file(
    place: Path, capfd: pytest.CaptureFixture[str], what: str, kind: str
) -> None:
    Path(f"{kind}.gz").symlink_to(kind)
    Path("passwords.toml").write_text(PASSWORDS.format(kind))
    assert run([word.format(kind) for word in COMMANDS[what]]) == 2
    [line] = capfd.readouterr().err.splitlines()
    assert f"it is a {kind}" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may open /proc/kmsg")
@pytest.mark.parametrize("what", sorted(COMMANDS.keys() - {"packed letters"}))
def test_a_file_that_waits_for_news_is_not_waited_for(place: Path, what: str) -> None:
    Path("passwords.toml").write_text(PASSWORDS.format("waits"))
    done = dlq([word.format("waits") for word in COMMANDS[what]])
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["dlq.toml", "dlq/dlq.toml"])
def test_the_next_configuration_is_not_taken_in_place_of_a_pipe(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
    Path(name).parent.mkdir(exist_ok=True)
    os.mkfifo(name)
    assert run(["ls"]) == 2
    assert "it is a pipe" in capfd.readouterr().err


@each_row("setting", ["ca_file", "cert_file", "key_file", "password_file"])
@each_row("kind", URLS)
def test_no_broker_s_library_is_given_a_pipe(place: Path, kind: str, setting: str) -> None:
    broker = plugin_of(kind).settings(name="shop", kind=kind, url=URLS[kind], **{setting: "pipe"})
    with pytest.raises(ConfigError, match=rf"brokers\.shop\.{setting}: cannot read pipe: it is a pipe"):
        open_connector(broker)


STORES = [
    "mysql://u@127.0.0.1:1/d?ssl_ca=pipe",
    "postgresql://u@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=pipe",
    "rediss://127.0.0.1:1/0?ssl_ca_certs=pipe",
]


@each_row("url", STORES)
def test_no_database_s_driver_is_given_a_pipe(place: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="cannot read pipe: it is a pipe"):
        open_ledger(Ledger(url=url), LocalStore("other"))
    with pytest.raises(ConfigError, match="cannot read pipe: it is a pipe"):
        stores.read(Evidence("pay", "rocketmq-dedup", url))


def test_a_pipe_that_is_open_already_is_read(place: Path) -> None:
    line = '{"broker_kind": "rabbitmq", "body_text": "x"}\n'
    for name in ("-", "/dev/stdin", "/dev/fd/0"):
        found = dlq(["import", name, "--source", "s"], input=line)
        assert found.returncode == 0, found.stderr


def test_a_small_file_is_small(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x")
    os.truncate(tmp_path / "large", 2**40)
    with pytest.raises(user_files.NotOrdinaryError) as found:
        user_files.text(tmp_path / "large")
    assert found.value.strerror == "it has more than 16 MiB"


def imported(path: str) -> object:
    return list(file.FileReading(path, ReadRequest(Source("s", "b"), "copy", "p"), None).batches())


@each_row("read", [imported, edits.read])
def test_a_line_that_is_too_long_for_any_letter_ends_the_command(
    read: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LONGEST", 2**20)
    (tmp_path / "endless").write_bytes(bytes(2**20 + 1))
    with pytest.raises(UsageError, match="endless: line of more than 1 MiB: this is no file of letters"):
        read(str(tmp_path / "endless"))
