"""A Spark session that is interrupted while its JVM starts leaves no JVM behind."""

import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SCRIPT = """
import signal
from dlq.analyzers.spark.session import session
from dlq.core.settings import Spark

signal.signal(signal.SIGINT, signal.default_int_handler)
with session(Spark(), few=True):
    print("up")
"""


def with_mark(mark: str) -> list[str]:
    """The command lines of the processes whose environment holds `mark`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return [line for line in found if line]


def test_an_interrupt_while_the_jvm_starts_ends_it() -> None:
    mark = uuid.uuid4().hex
    running = subprocess.Popen(
        ["env", f"MARK={mark}", sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not any("SparkSubmit" in line for line in with_mark(mark)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(2)
    out, err = running.communicate(timeout=60)
    assert out == b""
    assert b"KeyboardInterrupt" in err
    while left := with_mark(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
