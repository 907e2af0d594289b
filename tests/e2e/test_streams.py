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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    line = json.dumps({"broker_kind": "rabbitmq", "queue": "orders.dlq", "body_text": "x" * 1000})
    (tmp_path / "a.jsonl").write_text(f"{line}\n" * 1000)
    assert shell(tmp_path, "dlq import a.jsonl").returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    "words", ["ls --limit 1000", "ls --limit 1000 -o csv", "ls --limit 1000 -o table", "export -", "rules"]
)
def test_a_reader_that_has_enough_ends_the_command_well(folder: Path, words: str) -> None:
    done = shell(folder, f"dlq {words} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- <&- 2>&-"])
def test_a_closed_stream_is_no_error(folder: Path, closed: str) -> None:
    done = shell(folder, f"dlq ls {closed}")
    assert (done.returncode, done.stderr) == (0, "")
