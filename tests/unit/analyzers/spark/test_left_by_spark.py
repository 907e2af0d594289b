"""A local Spark needs of its host neither a name nor a network; what it keeps on the disk is its user's alone,
and goes with it."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dlq.archive.storage import scratch

pytestmark = pytest.mark.spark

CODE = """
import os, sys
os.umask(0)
from dlq.analyzers.spark.session import session
from dlq.core.settings import Settings
with session(Settings().spark) as spark:
    rows = spark.range(1000).selectExpr("cast(id % 7 as string) as letter")
    rows.repartition(3).groupBy("letter").count().persist().collect()
    print("working", flush=True)
    sys.stdin.read()
"""

CRASH = """
import os, signal
from pathlib import Path
from dlq.analyzers.spark.session import session
from dlq.archive.storage import scratch
from dlq.core.settings import Settings
with session(Settings().spark) as spark:
    java = spark.sparkContext._gateway.proc
    os.kill(java.pid, signal.SIGSEGV)
    java.wait()
    print([path.name for path in scratch.folder().rglob("crash.log")], flush=True)
"""


def test_java_leaves_no_report_of_a_crash(tmp_path: Path) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", CRASH]
    done = subprocess.run(words, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "['crash.log']\n"
    assert [*here.iterdir(), *temporary.iterdir()] == []


def test_what_spark_keeps_is_its_users_alone_and_removed_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", CODE], env=environment, text=True, **pipes) as working:
        assert working.stdout is not None
        assert working.stdout.readline() == "working\n"
        kept = [path for path in tmp_path.rglob("*") if "blockmgr" in str(path)]
        assert any(path.is_file() for path in kept)
        assert [path for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
        assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o700]
        working.send_signal(signal.SIGKILL)
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "kept", {})
    mine = scratch.folder()
    assert list(tmp_path.iterdir()) == [mine]


COUNT = """
from dlq.analyzers.spark.session import session
from dlq.core.settings import Settings
with session(Settings().spark) as spark:
    print(spark.range(7).count())
"""
REFUSED = """
import sys
from dlq.analyzers.spark.session import session
from dlq.core.errors import UsageError
from dlq.core.settings import Spark
try:
    with session(Spark(conf={"spark.driver.memory": sys.argv[1]})):
        pass
except UsageError as error:
    print(error)
"""
NAMELESS = ("unshare", "--user", "--map-root-user", "--uts", "sh", "-c")
"""Runs the arguments behind it on a host that cannot resolve its own name."""


def printed(code: str, *before: str, told: str = "") -> str:
    command = [*before, sys.executable, "-c", code, told]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_host_that_cannot_resolve_its_own_name_will_do() -> None:
    assert printed(COUNT, *NAMELESS, 'hostname no-such-host.invalid && exec "$@"', "sh") == "7\n"


@pytest.mark.parametrize(("memory", "why"), [("much", "Invalid maximum heap size"), ("1k", "Too small")])
def test_what_java_says_before_it_ends_is_said(memory: str, why: str) -> None:
    assert printed(REFUSED, told=memory).startswith(f"Spark does not start: {why}")
