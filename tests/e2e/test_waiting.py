"""What a pull says while it waits, and when it is interrupted."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.builders import in_file, memory_sources
from support.waiting import PATIENCE, SOON

from dlq.connectors.memory import MemoryBroker

DLQ = str(Path(sys.executable).with_name("dlq"))


@contextmanager
def running(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    pipe, given = subprocess.PIPE, {**os.environ, "XDG_CONFIG_HOME": str(folder)}
    with subprocess.Popen([DLQ, *words], cwd=folder, env=given, text=True, stdout=pipe, stderr=pipe) as one:
        try:
            yield one
        finally:
            one.kill()


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
@pytest.mark.parametrize("words", [("pull", "a"), ("pull",)], ids=["one source", "several at once"])
def test_a_silent_broker_is_told_of_after_five_seconds_and_left_by_ctrl_c(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    names = words[1:] or ("a", "b")
    with running(tmp_path, *words) as pull:
        assert pull.stderr
        waiting = re.compile(r"(\w): waiting for the broker shop, (\d+)s without an answer\n")
        told = [waiting.fullmatch(pull.stderr.readline()) for _ in names]
        assert {line and line[1] for line in told} == {*names}
        assert all(line and int(line[2]) >= 5 for line in told)
        pull.send_signal(signal.SIGINT)
        if len(names) > 1:
            assert any("Ctrl-C again ends at once" in line for line in pull.stderr)
            pull.send_signal(signal.SIGINT)
        assert pull.wait(SOON) == 130


def interrupted(folder: Path, *names: str) -> tuple[str, str, dict[str, int]]:
    """What a pull of 6,000 letters of each source prints that gets a Ctrl-C as soon as it has archived some,
    and how many are left; none where all was over before it."""
    folder.mkdir()
    broker = MemoryBroker(str(folder / "broker.db"))
    for name in names:
        letters = ({"broker_kind": "rabbitmq", "body_text": f"{n}" * 50} for n in range(6_000))
        broker.put(f"{name}.dlq", *letters)
    (folder / "dlq.toml").write_text(memory_sources(in_file(folder), *names))
    with running(folder, "pull", "--mode", "drain", "-o", "csv") as pull:
        while not list((folder / "archive").glob("manifests/**/*.json")) and pull.poll() is None:
            time.sleep(0.01)
        pull.send_signal(signal.SIGINT)
        out, err = pull.communicate(timeout=PATIENCE)
    left = {name: broker.depth(f"{name}.dlq") for name in names}
    assert pull.returncode == 130 or not any(left.values()), err
    return out, err, left


def test_ctrl_c_ends_a_pull_with_the_sum_of_what_is_archived(tmp_path: Path) -> None:
    for folder in (tmp_path / f"{n}" for n in range(9)):
        out, err, left = interrupted(folder, "orders", "bills")
        if any(left.values()):
            break
    captured = {line.split(",")[0]: int(line.split(",")[4]) for line in out.splitlines()[1:]}
    assert "what is archived stays" in err
    assert captured
    assert {name: captured[name] + left[name] for name in captured} == dict.fromkeys(captured, 6_000)
    assert sum(left.values()) > 0


def test_a_watch_goes_on_until_ctrl_c_and_tells_each_look_at_once(tmp_path: Path) -> None:
    MemoryBroker(tmp_path / "broker.db").declare("a.dlq")
    (tmp_path / "dlq.toml").write_text(memory_sources(in_file(tmp_path), "a"))
    with running(tmp_path, "watch", "--every", "0.1") as watch:
        assert watch.stdout
        assert watch.stderr
        assert all('"depth": 0' in watch.stdout.readline() for _ in range(3))
        watch.send_signal(signal.SIGINT)
        assert watch.wait(SOON) == 130
        assert "Traceback" not in watch.stderr.read()
