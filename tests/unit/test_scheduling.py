"""The tests' own ways: to share them among workers, to wait, to go through rows, and to fetch brokers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import needs
from support.rows import each_row
from support.scheduling import group_of
from support.waiting import PATIENCE

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
        [sys.executable, *words.split()], cwd=tmp_path, env={"PYTHONPATH": str(SUPPORT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 23 passed" in done.stdout, done.stdout
    assert "crashed while running 'test_d.py::test_one[2]'" in done.stdout


LIMIT = re.compile(
    r"(?:monotonic\(\) \+ |timeout=|\.(?:wait|join|result|communicate|receive|settimeout|fail_after)\()"
    r"(\d+(?:\.\d+)?)\b(?!.*\n\s*except \S*TimeoutExpired)"
)
"""For how long something is waited; but not where what has not ended by then is killed."""
AT_ONCE = 5
"""Seconds of less are for what does not come."""


def test_what_a_test_waits_for_has_the_one_patience() -> None:
    """A limit of its own is a guess of how busy a machine may be."""
    paths = [path for path in SUPPORT.rglob("*.py") if "programs" not in path.parts]
    assert len(paths) > 400
    found = {path.name: [float(text) for text in LIMIT.findall(path.read_text())] for path in paths}
    assert [name for name, limits in found.items() if any(AT_ONCE <= one < PATIENCE for one in limits)] == []


@each_row(
    ("test", "group"),
    [
        ("tests/services/rabbitmq/test_witness.py::test_a[4]", "4 tests/services/rabbitmq/test_witness.py"),
        ("tests/services/rabbitmq/test_errors.py::test_a[4]", "4 tests/services/rabbitmq/"),
        ("tests/services/coverage/test_rabbitmq.py::test_a[3.10-7]", "3.10 tests/services/coverage/"),
        ("tests/e2e/test_replay_rabbitmq.py::test_a[4-quorum]", "4 "),
        ("tests/services/kafka/test_reading.py::test_a[4.4.0-4]", "4.4.0"),
        ("tests/unit/core/test_text.py::test_a[4]", "tests/unit/core/test_text.py"),
    ],
)
def test_what_needs_one_broker_runs_in_one_worker(test: str, group: str) -> None:
    assert group_of(test) == group


def test_each_row_that_fails_is_named_with_its_reason() -> None:
    @each_row(("a", "b"), [(1, 2), (2, 2), (3, 4)])
    def are_equal(a: int, b: int) -> None:
        assert a == b, "differs"

    with pytest.raises(AssertionError) as raised:
        are_equal()
    said = str(raised.value).splitlines()
    assert [line for line in said if "differs" in line] == ["(1, 2): differs", "(3, 4): differs"]


@each_row("name", ["needs.py", *sorted(program for program, *_ in needs.FETCHED.values())])
def test_what_fetches_a_broker_needs_no_library_as_it_runs_while_these_are_fetched(name: str) -> None:
    program = str(Path(needs.__file__).parent / name)
    imported = f"import runpy; runpy.run_path({program!r}, run_name='imported')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", imported], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
