"""What is needed only while a process runs is its user's alone, and goes when it ends, however it ends."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq.archive.storage import scratch

CODE = """
import os, signal, sys
os.umask(0)
from dlq.archive.storage import scratch
place = scratch.folder("spark") / "letters"
place.write_text("x")
print(place, flush=True)
{end}
"""


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Path]:
    """Lets another process make its folder, and end so; where its file is."""

    def make(end: str) -> Path:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        words = [sys.executable, "-c", CODE.format(end=end)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return Path(done.stdout.strip())

    return make


def test_a_folder_that_may_only_be_written_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(_place: str) -> None:
        raise PermissionError

    monkeypatch.setattr(scratch, "kept", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "scandir", refused)
    assert scratch.folder().parent == tmp_path


def test_what_a_killed_process_has_left_is_its_users_alone_until_the_next_one_removes_it(
    made: Callable[[str], Path], tmp_path: Path
) -> None:
    left = made("os.kill(os.getpid(), signal.SIGKILL)")
    [folder] = tmp_path.iterdir()
    assert left.is_relative_to(folder)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, left.parent)] == [0o700, 0o700]
    made("")
    assert list(tmp_path.iterdir()) == []


def test_it_is_gone_at_the_end(made: Callable[[str], Path], tmp_path: Path) -> None:
    made("")
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_another_has_taken_is_left_alone(tmp_path: Path, made: Callable[[str], Path]) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").touch()
    (tmp_path / "dlq-scratch-taken").symlink_to(tmp_path / "victim")
    made("")
    assert (tmp_path / "victim" / "file").exists()


def test_that_of_a_living_process_stays(tmp_path: Path, made: Callable[[str], Path]) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", CODE.format(end="sys.stdin.read()")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as living:
        assert living.stdout is not None
        place = Path(living.stdout.readline().strip())
        made("")
        assert place.read_text() == "x"
        living.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_has_one_of_its_own(made: Callable[[str], Path], tmp_path: Path) -> None:
    end = "child = os.fork()\nif not child: print(scratch.folder() != place.parent.parent, place.exists())"
    assert str(made(f"{end}\nelse: os.waitpid(child, 0)")).endswith("True True")
    assert list(tmp_path.iterdir()) == []


def test_a_command_leaves_no_core(tmp_path: Path) -> None:
    """A process that dumps one says so to who waits for it (wait(2)), wherever the core goes."""
    code = """
import os, resource
from dlq.cli import app
child = os.fork()
if not child:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    app._leave_no_core()
    os.abort()
print(os.WCOREDUMP(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert (done.stdout.strip(), list(tmp_path.iterdir())) == ("False", [])
