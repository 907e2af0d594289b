"""What a pull says while it waits, and when it is interrupted."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import PATIENCE, SOON

from dlq.connectors.memory import MemoryBroker

DLQ = str(Path(sys.executable).with_name("dlq"))


@contextmanager
def running(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    pipe = subprocess.PIPE
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder)}
    with subprocess.Popen(
        [DLQ, *words], cwd=folder, env=environment, text=True, stdout=pipe, stderr=pipe
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """A broker that accepts connections and never says a word; its sources a and b are configured."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"amqp://guest@127.0.0.1:{server.getsockname()[1]}"
        text = f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{url}"\n'
        sources = "".join(f'[sources.{name}]\nbroker = "shop"\nqueue = "{name}.dlq"\n' for name in "ab")
        (tmp_path / "dlq.toml").write_text(text + sources)
        yield url


@pytest.mark.usefixtures("silent")
def test_a_silent_broker_is_told_of_after_five_seconds_and_left_by_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path, "pull", "a") as pull:
        assert pull.stderr is not None
        assert pull.stderr.readline() == "a: waiting for the broker shop, 5s without an answer\n"
        pull.send_signal(signal.SIGINT)
        assert pull.wait(SOON) == 130


@pytest.mark.usefixtures("silent")
def test_several_sources_are_waited_for_at_once_and_left_by_two_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path, "pull") as pull:
        assert pull.stderr is not None
        told = {pull.stderr.readline() for _ in "ab"}
        assert told == {f"{name}: waiting for the broker shop, 5s without an answer\n" for name in "ab"}
        pull.send_signal(signal.SIGINT)
        assert "Ctrl-C again ends at once" in pull.stderr.readline()
        pull.send_signal(signal.SIGINT)
        assert pull.wait(SOON) == 130


def test_ctrl_c_ends_a_pull_with_the_sum_of_what_is_archived(tmp_path: Path) -> None:
    names = ("orders", "bills")
    broker = MemoryBroker(str(tmp_path / "broker.db"))
    sources = ""
    for name in names:
        broker.declare(f"{name}.dlq")
        letters = [{"broker_kind": "rabbitmq", "body_text": f"{n}" * 50} for n in range(6_000)]
        broker.put(f"{name}.dlq", *letters)
        sources += f'[sources.{name}]\nbroker = "shop"\nqueue = "{name}.dlq"\n'
    url = f"memory://{tmp_path}/broker.db"
    (tmp_path / "dlq.toml").write_text(f'[brokers.shop]\nkind = "memory"\nurl = "{url}"\n{sources}')

    with running(tmp_path, "pull", "--mode", "drain", "-o", "csv") as pull:
        while not list((tmp_path / "archive").glob("manifests/**/*.json")) and pull.poll() is None:
            time.sleep(0.01)
        pull.send_signal(signal.SIGINT)
        out, err = pull.communicate(timeout=PATIENCE)
    captured = {line.split(",")[0]: int(line.split(",")[4]) for line in out.splitlines()[1:]}

    assert pull.returncode == 130
    assert "what is archived stays" in err
    left = {name: broker.depth(f"{name}.dlq") for name in captured}
    assert captured
    assert {name: captured[name] + left[name] for name in captured} == dict.fromkeys(captured, 6_000)
    assert sum(left.values()) > 0


def test_a_watch_goes_on_until_ctrl_c_and_tells_each_look_at_once(tmp_path: Path) -> None:
    MemoryBroker(tmp_path / "broker.db").declare("a.dlq")
    (tmp_path / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "memory"\nurl = "memory://{tmp_path}/broker.db"\n'
        '[sources.a]\nbroker = "shop"\nqueue = "a.dlq"\n'
    )
    with running(tmp_path, "watch", "--every", "0.1") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert all('"depth": 0' in watch.stdout.readline() for _ in range(3))
        watch.send_signal(signal.SIGINT)
        assert watch.wait(SOON) == 130
        assert "Traceback" not in watch.stderr.read()
