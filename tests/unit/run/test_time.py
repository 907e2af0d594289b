"""A run ends in time, whatever hangs, and says so when it is interrupted."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from running import Team

from dlq.analyzers.spark import job
from dlq.cli.time_limit import OutOfTime, time_limit
from dlq.connectors import memory


def test_the_whole_run_ends_in_time(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "analyze", lambda *_arguments, **_options: time.sleep(600))
    team.profile('max_time = "3s"\nmetrics = "dlq.prom"')
    team.put(2)
    started = time.monotonic()
    done = team.run()
    assert time.monotonic() - started < 20
    assert done.code == 3
    assert "no time is left" in done.err
    assert Path("dlq.prom").exists()


def test_a_source_that_hangs_leaves_the_others_no_worse_than_untouched(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_an_interrupted_run_says_so_and_leaves_the_letters(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_self: Any, _request: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory.MemoryConnector, "read", interrupt)
    team.put(1)
    done = team.run("--log-format", "json")
    assert done.code == team.run().code == 130
    assert done.events[-1]["error"] == "interrupted"
    assert team.broker.depth("orders.dlq") == 1


def test_a_step_within_its_time_is_left_alone() -> None:
    with time_limit(30):
        time.sleep(0.01)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with pytest.raises(OutOfTime), time_limit(0.05):
        time.sleep(30)
