"""Who closes a pipe has read enough, and who closes a stream wants nothing of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DLQ = Path(sys.executable).with_name("dlq")


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{DLQ.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    line = json.dumps({"broker_kind": "rabbitmq", "queue": "orders.dlq", "body_text": "x" * 1000})
    (folder / "a.jsonl").write_text(f"{line}\n" * 1000)
    assert shell(folder, "dlq import a.jsonl").returncode == 0
    return folder


def test_a_reader_that_has_enough_ends_the_command_well(folder: Path) -> None:
    lists = [f"ls --limit 1000 -o {output}" for output in ("jsonl", "csv", "table")]
    for words in (*lists, "export -", "rules"):
        done = shell(folder, f"dlq {words} | true; echo ${{PIPESTATUS[0]}}")
        assert (done.stdout, done.stderr) == ("0\n", ""), words


def test_a_closed_stream_is_no_error(folder: Path) -> None:
    for closed in (">&-", "<&-", "2>&-", ">&- <&- 2>&-"):
        done = shell(folder, f"dlq ls {closed}")
        assert (done.returncode, done.stderr) == (0, ""), closed


def test_a_full_disk_at_the_end_of_the_output_is_told_in_a_line(folder: Path) -> None:
    said = "dlq: no space is left on the device where the output goes: make room, and run it again"
    for words in ("ls -o json", "query 'select 1' -o csv", "report", "rules -o table"):
        done = shell(folder, f"dlq {words} >/dev/full")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (3, said), words


BROKEN_SOCKET = """
import sys
from dlq.cli import app
from dlq.cli.commands import ls

def broken_socket() -> None:
    "List letters."
    raise BrokenPipeError(32, "Broken pipe")

ls.ls = broken_socket
sys.exit(app.run(["ls"]))
"""


@pytest.mark.parametrize("pipe", ["", "| cat; exit ${PIPESTATUS[0]}"])
def test_a_broken_socket_is_not_taken_for_a_closed_pipe(folder: Path, pipe: str) -> None:
    (folder / "broken.py").write_text(BROKEN_SOCKET)
    done = shell(folder, f"{sys.executable} broken.py {pipe}")
    assert done.returncode == 1
    assert "unexpected BrokenPipeError" in done.stderr


def test_an_error_that_nobody_reads_keeps_its_code(folder: Path) -> None:
    done = shell(folder, "{ sleep 1; dlq ls -o xml; echo $? > code; } 2>&1 | true; sleep 3; cat code")
    assert done.stdout == "2\n"
