"""The alarm of a run: a command that gets JSON, and that may fail as it likes."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.running import SECRET_BODY, Team
from support.waiting import PATIENCE, eventually, is_dead

from dlq.core.runtime import patience


def test_the_alarm_gets_json_on_stdin_and_no_shell(team: Team, tmp_path: Path) -> None:
    hook = tmp_path / "notify team"
    hook.write_text('#!/bin/sh\n(printf %s "$1"; cat) > told\n')
    hook.chmod(0o700)
    bounds = '["total > 2", "unknown > 90%", "held > 0"]'
    team.profile(f'fail_on = {bounds}\non_alarm = ["{hook}", "$HOME;"]')
    team.put(4)
    done = team.run()
    assert done.code == 5
    assert done.json["alarms"] == ["total > 2: total is 4", "unknown > 90%: unknown is 100.0% (4 of 4)"]
    told = Path("told").read_text()
    assert told.startswith("$HOME;{")
    document = json.loads(told.removeprefix("$HOME;"))
    assert (document["profile"], document["alarms"]) == ("nightly", done.json["alarms"])
    assert document["counts"]["unknown"] == 4
    assert SECRET_BODY not in told


def test_an_alarm_that_hangs_is_killed_with_its_children(team: Team) -> None:
    hook = '["/bin/sh", "-c", "sleep 600 & echo $! > child; wait"]'
    team.profile(f'fail_on = ["total > 0"]\non_alarm = {hook}\nalarm_timeout = "5s"')
    team.put(1)
    started = time.monotonic()
    done = team.run()
    assert time.monotonic() - started < PATIENCE
    assert done.code == 5
    assert "on_alarm: /bin/sh did not end within 5s" in done.err
    eventually(lambda: is_dead(int(Path("child").read_text())))


def test_a_hook_that_is_not_there_is_one_line_and_the_alarm_stays(team: Team) -> None:
    team.profile('fail_on = ["total > 0"]\non_alarm = ["/nowhere/hook"]')
    team.put(1)
    done = team.run()
    assert done.code == 5
    assert "on_alarm: /nowhere/hook does not start: No such file" in done.err


def go_on_for_ever(asked: socket.socket) -> None:
    while True:
        asked.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


def drip(asked: socket.socket) -> None:
    asked.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        asked.sendall(b"x")
        time.sleep(0.05)


@contextmanager
def collector(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of one that answers so until it is hung up on."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as asked:
                asked.recv(65536)
                answer(asked)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)  # of which nobody may have asked anything in time
        thread.join()


@pytest.mark.parametrize("answer", [go_on_for_ever, drip])
def test_a_collector_whose_answer_never_ends_keeps_no_alarm_back(
    team: Team, monkeypatch: pytest.MonkeyPatch, answer: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(patience, "ENDED", 2.0)
    with collector(answer) as url:
        hook = '["/usr/bin/touch", "told"]'
        team.profile(f'fail_on = ["total > 0"]\non_alarm = {hook}\nmetrics_otlp = "{url}"')
        team.put(1)
        done = team.run()
    assert done.code == 5
    assert "metrics: stopped: the collector's answer does not end, after 2s" in done.err
    assert Path("told").exists()
