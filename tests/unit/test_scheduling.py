"""The tests' own way to share them among workers."""

import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parents[1]
TESTS = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one(number):
    if (__name__, number) == ("test_d", 2):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_costs_the_run_one_test(tmp_path: Path) -> None:
    for name in "abcd":
        Path(tmp_path, f"test_{name}.py").write_text(TESTS)
    words = (
        "-m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -p support.scheduling -p no:cacheprovider"
    )
    done = subprocess.run(
        [sys.executable, *words.split()],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 23 passed" in done.stdout, done.stdout
    assert "crashed while running 'test_d.py::test_one[2]'" in done.stdout
