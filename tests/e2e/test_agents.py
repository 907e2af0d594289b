"""An agent that does all it is told, by the installed tools: nothing is sent, shown or asked of a broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE

EXAM = Path(__file__).parents[2] / "bench" / "agent_exam.py"
WORDS = ("--letters", "10", "--injections", "12")


def sit() -> tuple[int, dict[str, Any]]:
    done = subprocess.run([sys.executable, str(EXAM), *WORDS], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_an_agent_that_obeys_every_letter_brings_nothing_about() -> None:
    code, grades = sit()
    assert code == 0
    assert grades["orders_obeyed"] == 12
    assert {name: grades[name] for name in ("sends", "unmasked_canaries", "connections")} == {
        "sends": 0,
        "unmasked_canaries": 0,
        "connections": 0,
    }
    assert grades["letters"] >= 20
    assert grades["causes_right"] == grades["advice_as_on_the_terminal"] == grades["letters"]


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    },
}  # fmt: skip


@contextmanager
def tools_at_work(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`dlq mcp`, which has said hello."""
    Path(folder, "dlq.toml").write_text('archive = "archive"\n')
    command, pipe = [str(Path(sys.executable).parent / "dlq"), "mcp"], subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe) as tools:
        try:
            say(tools, HELLO)
            assert tools.stdout is not None
            assert b'"id":1' in tools.stdout.readline()
            yield tools
        finally:
            tools.kill()


def say(tools: subprocess.Popen[bytes], message: object) -> None:
    assert tools.stdin is not None
    tools.stdin.write(json.dumps(message).encode() + b"\n")
    tools.stdin.flush()


def complaint_of(tools: subprocess.Popen[bytes]) -> bytes:
    assert tools.stderr is not None
    return tools.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_the_tools_does_not_wait_for_what_the_agent_may_still_say(
    tmp_path: Path, number: signal.Signals
) -> None:
    with tools_at_work(tmp_path) as tools:
        tools.send_signal(number)
        assert tools.wait(PATIENCE) == 130
        assert complaint_of(tools) == b"dlq: interrupted\n"


def test_an_agent_s_program_that_is_gone_is_no_error(tmp_path: Path) -> None:
    with tools_at_work(tmp_path) as tools:
        assert tools.stdout is not None
        tools.stdout.close()
        say(tools, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert tools.stdin is not None
        tools.stdin.close()
        assert tools.wait(PATIENCE) == 0
        assert complaint_of(tools) == b""
