"""What monitoring reads of a run: metrics, the last success, and one JSON line a step."""

import os
from pathlib import Path

import pytest
from support.running import SECRET_BODY, Team, last_success


def test_the_last_success_stands_still_while_runs_fail(team: Team) -> None:
    team.profile('metrics = "dlq.prom"')
    assert team.run().code == 0
    good = last_success(team)
    team.profile('metrics = "dlq.prom"', sources='["gone"]')
    assert team.run().code == 4
    assert last_success(team) == pytest.approx(good, abs=1.0)
    assert "dlq_run_exit_code 4" in Path("dlq.prom").read_text()


def test_metrics_are_replaced_whole_and_leave_no_other_file(team: Team) -> None:
    team.profile('metrics = "metrics/dlq.prom"')
    team.put(3)
    team.run()
    team.run()
    assert os.listdir("metrics") == ["dlq.prom"]
    assert 'dlq_captured_letters_total{source="orders"} 3' in Path("metrics/dlq.prom").read_text()
    assert 'dlq_letters{source="orders",cause="unknown"} 3' in Path("metrics/dlq.prom").read_text()


def test_each_step_is_one_json_line_without_content(team: Team) -> None:
    team.profile('report = ["n.md"]\nmetrics = "dlq.prom"\nfail_on = ["total > 0"]', sources='["*"]')
    team.put(2)
    done = team.run("--log-format", "json")
    names = [event["event"] for event in done.events]
    assert names == [
        "run_started", "source_pulled", "source_pulled", "source_failed", "analyzed", "report_written",
        "threshold_passed", "metrics_written", "run_finished",
    ]  # fmt: skip
    assert all({"time", "level", "event"} <= set(event) for event in done.events)
    assert done.events[-1]["exit_code"] == done.code == 5
    assert SECRET_BODY not in done.err


def test_a_usage_mistake_is_a_json_line_as_well(team: Team) -> None:
    team.profile('max_time = "0s"')
    done = team.run("--log-format", "json")
    assert done.code == 2
    assert [event["event"] for event in done.events] == ["run_failed"]
    assert team.run("--log-format", "xml").code == 2
