"""An agent that does all it is told, by the installed tools: nothing is sent, shown or asked of a broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from support.waiting import PATIENCE

EXAM = Path(__file__).parents[2] / "bench" / "agent_exam.py"
WORDS = ("--letters", "10", "--injections", "12")


def test_an_agent_that_obeys_every_letter_brings_nothing_about() -> None:
    done = subprocess.run([sys.executable, str(EXAM), *WORDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grades = json.loads(done.stdout)
    assert grades["orders_obeyed"] == 12
    assert (grades["sends"], grades["unmasked_canaries"], grades["connections"]) == (0, 0, 0)
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


class Tools(NamedTuple):
    """`dlq mcp`, and its streams."""

    process: "subprocess.Popen[bytes]"
    asked: IO[bytes]
    told: IO[bytes]
    errors: IO[bytes]

    def say(self, message: object) -> None:
        self.asked.write(json.dumps(message).encode() + b"\n")
        self.asked.flush()


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Tools]:
    """They have said hello."""
    (tmp_path / "dlq.toml").write_text('archive = "archive"\n')
    command, pipe = [str(Path(sys.executable).parent / "dlq"), "mcp"], subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdin
            assert process.stdout
            assert process.stderr
            tools = Tools(process, process.stdin, process.stdout, process.stderr)
            tools.say(HELLO)
            assert b'"id":1' in tools.told.readline()
            yield tools
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_the_tools_does_not_wait_for_what_the_agent_may_still_say(
    tools: Tools, number: signal.Signals
) -> None:
    tools.process.send_signal(number)
    assert tools.process.wait(PATIENCE) == 130
    assert tools.errors.read() == b"dlq: interrupted\n"


def test_an_agent_s_program_that_is_gone_is_no_error(tools: Tools) -> None:
    tools.told.close()
    tools.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    tools.asked.close()
    assert tools.process.wait(PATIENCE) == 0
    assert tools.errors.read() == b""
