"""A run ends in time, whatever hangs, and says so when it is interrupted."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import Team
from support.waiting import PATIENCE

from dlq.analyzers import analysis as job
from dlq.connectors import memory
from dlq.connectors.base import Batch
from dlq.operations import profile_run
from dlq.operations.time_limit import OutOfTime, time_limit


def test_the_whole_run_ends_in_time(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "analyze", lambda *_arguments, **_options: time.sleep(600))
    team.profile('max_time = "3s"\nmetrics = "dlq.prom"')
    team.put(2)
    started = time.monotonic()
    done = team.run()
    assert time.monotonic() - started < PATIENCE
    assert (done.code, "no time is left" in done.err, Path("dlq.prom").exists()) == (3, True, True)


def test_a_source_that_hangs_leaves_the_others_alone(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    read = memory.MemoryConnector.read

    def hang(self: Any, request: Any) -> Any:
        return time.sleep(600) if request.source.name == "orders" else read(self, request)

    monkeypatch.setattr(memory.MemoryConnector, "read", hang)
    team.profile('max_time = "3s"')
    team.put(1)
    done = team.run()
    assert done.code == 3
    assert "no time is left" in done.json["sources"][0]["error"]
    assert team.broker.depth("orders.dlq") == 1


def test_a_slow_source_stops_and_keeps_what_it_has(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = memory.MemoryReading.batches

    def slowly(self: Any) -> Iterator[Any]:
        position = 0
        for batch in batches(self):
            position = batch.position
            yield batch
        while True:
            time.sleep(0.1)
            yield Batch((), position)

    monkeypatch.setattr(memory.MemoryReading, "batches", slowly)
    monkeypatch.setattr(profile_run, "PULLS_END", 100.0)
    team.profile('max_time = "9s"')  # two letters have come by then
    team.put(2)
    done = team.run()
    assert done.code == 3
    [orders, bills] = done.json["sources"]
    assert orders["captured"] == 2
    assert "no time is left" in orders["error"]
    assert "no time is left" in bills["error"]


def test_an_interrupted_run_leaves_the_letters(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_self: Any, _request: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory.MemoryConnector, "read", interrupt)
    team.put(1)
    done = team.run("--log-format", "json")
    assert done.code == team.run().code == 130
    assert done.events[-1]["error"] == "interrupted"
    assert team.broker.depth("orders.dlq") == 1


def test_a_ctrl_c_that_comes_as_the_last_pull_ends_ends_the_run(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = memory.MemoryConnector.close
    ended: list[None] = []

    def interrupt_at_the_last(self: Any) -> None:
        close(self)
        ended.append(None)
        if len(ended) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)  # until it is heard

    monkeypatch.setattr(memory.MemoryConnector, "close", interrupt_at_the_last)
    monkeypatch.setattr(job, "analyze", None)
    team.put(1)
    assert team.run().code == 130
    assert team.broker.depth("orders.dlq") == 0


def test_an_alarm_that_comes_as_the_step_ends_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    set_timer, late = signal.setitimer, iter([True])

    def set_late(which: int, seconds: float) -> None:
        if not seconds and next(late, False):
            signal.raise_signal(signal.SIGALRM)
        set_timer(which, seconds)

    monkeypatch.setattr(signal, "setitimer", set_late)
    with pytest.raises(OutOfTime), time_limit(30):
        pass


def test_a_step_within_its_time_is_left_alone() -> None:
    with time_limit(30):
        time.sleep(0.01)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with pytest.raises(OutOfTime), time_limit(0.05):
        time.sleep(30)
