"""bench/turns.py: what holds a change to the speed of the commit before it."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.builders import load_script
from support.rows import each_row

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return load_script(BENCH / "turns.py")


WORSE = [
    ((100, 1000, 50), False), ((104, 960, 52), False), ((106, 1000, 50), True), ((100, 940, 50), True),
    ((100, 1000, 53), True), ((10, 9000, 5), False),
]  # fmt: skip


@each_row(("new", "worse"), WORSE)
def test_more_than_a_twentieth_worse_in_one_figure_is_worse(
    turns: ModuleType, new: tuple[float, ...], worse: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    old = turns.Spent(100, 1000, 50)
    assert turns.compare({("pull", "old"): [old], ("pull", "new"): [turns.Spent(*new)]}) is worse
    assert (" worse" in capsys.readouterr().out) is worse


def test_one_round_out_of_three_that_was_disturbed_does_not_count(turns: ModuleType) -> None:
    calm, disturbed = turns.Spent(100, 1000, 50), turns.Spent(900, 10, 500)
    found = {("apply", "old"): [calm] * 3, ("apply", "new"): [calm, disturbed, calm]}
    assert not turns.compare(found)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="compares with a commit, and here is none")
def test_a_commit_and_this_tree_drain_by_turns() -> None:
    words = ("HEAD", "--letters", "50", "--rounds", "1", "--work", "pull")
    command = [sys.executable, str(BENCH / "turns.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["pull", "cpu"], ["pull", "rate"], ["pull", "peak"]], done.stderr
    assert done.returncode == any(row[-1] == "worse" for row in rows)
