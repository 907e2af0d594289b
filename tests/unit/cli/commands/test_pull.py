"""What `dlq pull` says beside its table."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.builders import memory_sources
from support.waiting import PATIENCE

from dlq.capture.pull import PullResult
from dlq.cli.app import run
from dlq.cli.context import Context
from dlq.core.errors import ConnectionLost, Unreachable
from dlq.operations import progress
from dlq.operations.brokers import pulling
from dlq.operations.brokers.pulling import say_notes
from dlq.operations.progress import Line


def test_a_note_that_several_sources_share_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    notes = {"orders": ["held until the end"], "bills": ["held until the end", "1 other consumer"], "new": []}
    say_notes(Context(), [PullResult(name, "p", "copy", notes=said) for name, said in notes.items()])
    told = ["orders, bills: held until the end", "bills: 1 other consumer"]
    assert capfd.readouterr().err.splitlines() == told


def test_no_time_is_no_time_to_pull_in(pulls: "Pulls", capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["pull", "a", "--max-time", "0s"]) == 2
    assert "'0s' is no time; give more" in capfd.readouterr().err


def test_what_ends_a_pull_says_what_to_do(
    pulls: "Pulls", monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = PullResult("a", "p", "copy", error=ConnectionLost("shop: it went"), partial=True)
    monkeypatch.setattr(pulling, "pull_one", lambda *_: ended)
    assert run(["pull", "a", "--no-analyze"]) == 4
    assert "dlq: a: shop: it went; run the command again\n" in capfd.readouterr().err


def test_json_names_the_sources_that_failed_also_where_all_did(
    pulls: "Pulls", monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def pull_one(_workspace: Any, source: Any, *_: Any) -> PullResult:
        if source.name == "a":
            return PullResult("a", "p", "copy", error=ConnectionLost("shop: it went"), partial=True)
        raise Unreachable("shop: it is away")

    monkeypatch.setattr(pulling, "pull_one", pull_one)
    for names, read in (("ab", ["a"]), ("b", [])):
        assert run(["-o", "json", "pull", *names, "--no-analyze"]) == 4
        told = json.loads(capfd.readouterr().out)
        assert [one["source"] for one in told["sources"]] == read
        assert [one["source"] for one in told["errors"]] == list(names)
    assert told["errors"][0]["error"] == "shop: it is away"


class Pulls:
    """Stands for the pull of a source: some wait for each other, and it notes which ran beside each other."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.together: set[frozenset[str]] = set()
        self.lock = threading.Lock()
        self.meet("")

    def meet(self, names: str) -> None:
        """Those of these names begin before one of them ends."""
        self.names, self.all_here = names, threading.Barrier(max(1, len(names)), timeout=PATIENCE)

    def __call__(self, _context: Any, source: Any, _options: Any, _line: Any, _stop: Any) -> PullResult:
        with self.lock:
            self.running.add(source.name)
            self.together |= {frozenset((source.name, other)) for other in self.running}
        if source.name in self.names:
            self.all_here.wait()
        with self.lock:
            self.running.remove(source.name)
        return PullResult(source.name, f"pull-{source.name}", "copy")


@pytest.fixture
def pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pulls:
    """Sources a and b of one queue, c and d of others."""
    monkeypatch.chdir(tmp_path)
    text = memory_sources("memory:pulls", *"abcd", queue="{}").replace('queue = "b"', 'queue = "a"')
    Path("dlq.toml").write_text(text)
    made = Pulls()
    monkeypatch.setattr(pulling, "pull_one", made)
    return made


@pytest.mark.parametrize(
    ("words", "expected", "meet"),
    [([], "abcd", "cd"), (["--parallel", "1"], "abcd", ""), (["a", "c", "a"], "ac", "ac")],
)
def test_several_sources_are_pulled_at_once_but_those_of_one_queue_in_turn(
    pulls: Pulls, capfd: pytest.CaptureFixture[str], words: list[str], expected: str, meet: str
) -> None:
    pulls.meet(meet)
    assert run(["pull", "-o", "json", *words]) == 0
    assert [row["source"] for row in json.loads(capfd.readouterr().out)["sources"]] == list(expected)
    assert ({len(names) for names in pulls.together} == {1}) == (not meet)
    assert frozenset("ab") not in pulls.together


def test_a_source_that_waits_for_its_turn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT", 0.0)
    line = Line("orders", "the broker shop", begun=False)
    assert str(line) == "orders: waits for its turn"
    assert line.silence == 0.0
    line.begin()
    assert "orders: waiting for the broker shop" in str(line)
