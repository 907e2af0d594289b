"""Who was stopped for too long does not go on, and who runs does."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.waiting import PATIENCE

SECONDS = 4.0
ARMED = f"""
import sys
from dlq.connectors.outbound import DeadMansSwitch
switch = DeadMansSwitch({SECONDS})
"""
TELLS = """
print("here", flush=True)
sys.stdin.readline()
print("here", flush=True)
"""


@contextmanager
def telling(program: str) -> Iterator[subprocess.Popen[str]]:
    """A process that says that it is here, and again for each line."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "here\n"
            yield running
        finally:
            running.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no such timers")
def test_a_process_that_is_stopped_never_goes_on() -> None:
    with telling(ARMED + TELLS) as running:
        running.send_signal(signal.SIGSTOP)
        assert running.wait(PATIENCE) == -signal.SIGKILL, "while it was stopped, not when it went on"


def test_a_process_that_runs_lives() -> None:
    with telling(ARMED + TELLS) as running:
        time.sleep(2 * SECONDS)
        assert running.communicate("\n")[0] == "here\n"


def test_one_that_is_disarmed_may_be_stopped_for_as_long_as_anybody_likes() -> None:
    with telling(ARMED + "switch.disarm()" + TELLS) as running:
        running.send_signal(signal.SIGSTOP)
        time.sleep(2 * SECONDS)
        assert running.poll() is None
        running.send_signal(signal.SIGCONT)
        assert running.communicate("\n")[0] == "here\n"
