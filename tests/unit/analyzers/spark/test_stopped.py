"""An analysis that is killed, interrupted, or not alone: what counts is whole, and no process is left."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.analyzers.letters import died
from support.archives import write_segment
from support.waiting import PATIENCE, STARTUP

from dlq.analyzers.analysis import analyze
from dlq.archive import analyses, views
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings

pytestmark = pytest.mark.spark
DLQ = str(Path(sys.executable).with_name("dlq"))
SESSION = """
import signal
from dlq.analyzers.spark.session import session
from dlq.core.settings import Spark

signal.signal(signal.SIGINT, signal.default_int_handler)
with session(Spark()):
    print("up")
"""


class Marked:
    """A process in a group of its own, whose children are known by their environment."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._mark = uuid.uuid4().hex
        self.running = subprocess.Popen(
            words, cwd=folder, env={**os.environ, "MARK": self._mark}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def wait_for(self, happens: Callable[[], bool]) -> None:
        """For something that comes after Java has started."""
        deadline = time.monotonic() + STARTUP
        while not happens():
            assert self.running.poll() is None, self.running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def interrupt(self) -> tuple[int, str, str]:
        """As Ctrl-C in a terminal does it: the signal goes to all processes of the group."""
        self.running.send_signal(signal.SIGCONT)
        os.killpg(self.running.pid, signal.SIGINT)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        """Exit code, output and errors; waits until none of its processes is left."""
        out, err = self.running.communicate(timeout=PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while left := self.alive():
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        return self.running.returncode, out, err

    def alive(self) -> list[str]:
        """The command lines of its processes."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text())
            except OSError:
                continue
        return [line for line in found if line]


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    for stem in ("p-0", "p-1"):
        of = [
            died(("rejected", "orders", 1), record_id=f"{n:031x}{stem[-1]}", captured_at=n) for n in range(50)
        ]
        write_segment(store, stem, of)
    return store


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Marked]]:
    started: list[Marked] = []

    def run(*words: str) -> Marked:
        started.append(Marked(tmp_path, *words))
        return started[-1]

    yield run
    for one in started:
        if one.running.poll() is None:
            one.running.kill()


def has_classified(store: LocalStore, but: int = 0) -> Callable[[], bool]:
    """Whether an analysis is past its first step; `but` so many whose files are there already."""
    return lambda: (
        len({name.split("/")[1] for name in store.list("analyses/") if "/classified/" in name}) > but
    )


def in_the_middle(store: LocalStore, start: Callable[..., Marked]) -> Marked:
    """An analysis that stands still behind its first step; another one, where it was over by then."""
    while True:
        found = start(DLQ, "analyze", "--engine", "spark")
        found.wait_for(has_classified(store))
        found.running.send_signal(signal.SIGSTOP)
        if not analyses.ids(store):
            return found
        found.running.kill()
        found.end()
        for name in store.list("analyses/"):
            store.delete(name)


def letters(store: LocalStore) -> list[tuple[str | None, str | None, int]]:
    with views.connect(store) as connection:
        sql = "SELECT analysis, cause, count(*) FROM letters GROUP BY ALL"
        found: list[tuple[str | None, str | None, int]] = connection.sql(sql).fetchall()
    return found


def test_one_that_is_killed_counts_for_nothing_and_two_at_once_both_count(
    spark: SparkSession, store: LocalStore, start: Callable[..., Marked]
) -> None:
    killed = in_the_middle(store, start)
    killed.running.kill()
    killed.end()
    assert analyses.ids(store) == []
    assert letters(store) == [(None, None, 100)]
    other = start(DLQ, "-o", "json", "analyze", "--engine", "spark")
    other.wait_for(has_classified(store, but=1))
    mine = analyze(store, Settings(), engine="spark")
    code, out, err = other.end()
    assert (code, err) == (0, "")
    assert '"poison_ack": 100' in out
    assert (mine.records, len(analyses.ids(store))) == (100, 2)
    for name in analyses.ids(store):
        files = [part["file"] for part in analyses.load(store, name).extra["parts"]]
        assert set(files) <= set(store.list("analyses/"))
        assert {file.split("/")[1] for file in files} <= set(analyses.ids(store)), (
            "not of the one that was killed"
        )
    assert letters(store) == [(analyses.ids(store)[-1], "poison_ack", 100)]


def test_an_interrupted_one_leaves_no_process(store: LocalStore, start: Callable[..., Marked]) -> None:
    running = in_the_middle(store, start)
    assert any("java" in line for line in running.alive())
    code, out, _err = running.interrupt()
    assert (code, out) == (130, "")
    assert analyses.ids(store) == []


def test_an_interrupt_while_java_starts_ends_it(start: Callable[..., Marked]) -> None:
    running = start(sys.executable, "-c", SESSION)
    running.wait_for(lambda: any("SparkSubmit" in line for line in running.alive()))
    running.running.send_signal(signal.SIGINT)
    code, out, err = running.end()
    assert out == ""
    assert code != 0
    assert "KeyboardInterrupt" in err
