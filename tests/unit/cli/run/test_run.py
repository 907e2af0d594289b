"""`dlq run` on the embedded broker: what a profile does, and what one failure costs."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.running import SECRET_BODY, Team, last_success

from dlq.analyzers import analysis as job
from dlq.archive import analyses
from dlq.connectors import memory
from dlq.core.errors import ArchiveError
from dlq.core.settings import Settings
from dlq.reports import report


def test_a_run_pulls_analyzes_and_reports(team: Team) -> None:
    team.profile('report = ["html:out/n.html", "out/n.md", "json:out/n.json"]\nmetrics = "out/dlq.prom"')
    team.put(5)
    team.put(2, "bills.dlq")
    done = team.run()
    assert done.code == 0
    assert list(done.json) == ["profile", "sources", "analysis", "reports", "metrics", "alarms", "seconds"]
    pulled = [(one["source"], one["captured"], one["left"]) for one in done.json["sources"]]
    assert pulled == [("orders", 5, 0), ("bills", 2, 0)]
    assert done.json["analysis"] == analyses.ids(team.store)[-1]
    assert done.json["reports"] == ["out/n.html", "out/n.md", "out/n.json"]
    assert json.loads(Path("out/n.json").read_text())["letters"] == 7
    assert "<html" in Path("out/n.html").read_text()


def test_an_empty_night_is_a_good_night(team: Team) -> None:
    team.profile('report = ["out/n.md"]\nfail_on = ["unknown > 0"]\nmetrics = "dlq.prom"')
    began = time.time()
    done = team.run()
    assert (done.code, done.json["analysis"], done.json["reports"]) == (0, None, [])
    assert last_success(team) > began - 1


def test_a_night_without_anything_new_needs_no_analysis(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    team.profile(sources='["orders"]')
    team.put(1)
    first = team.run()
    monkeypatch.setattr(job, "still_holds", lambda store, _settings: analyses.latest(store))
    monkeypatch.delattr(job, "analyze")
    second = team.run("--log-format", "json")
    assert (second.code, second.json["analysis"]) == (0, first.json["analysis"])
    assert "nothing_new" in [event["event"] for event in second.events]


def test_a_run_that_never_analyzed_anything_is_no_success(team: Team) -> None:
    team.put(2)
    for wanted in ('fail_on = ["total > 0"]', 'report = ["out/n.md"]'):
        team.profile(f"{wanted}\nanalyze = false")
        done = team.run()
        assert (done.code, "set analyze = true" in done.err) == (3, True), done.err
    team.profile("analyze = false")
    assert team.run().code == 0


def test_one_source_that_fails_does_not_stop_the_others(team: Team) -> None:
    team.profile(sources='["*"]')
    team.put(3, "bills.dlq")
    done = team.run()
    assert done.code == 3
    by_name = {s["source"]: s for s in done.json["sources"]}
    assert by_name["gone"] == {"source": "gone", "error": "no queue 'gone.dlq' on the memory broker"}
    assert by_name["bills"]["captured"] == 3
    assert "dlq: gone: no queue" in done.err


def test_a_fault_nobody_knew_costs_only_its_own_source(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    read = memory.MemoryConnector.read

    def explode(self: Any, request: Any) -> Any:
        if request.source.name == "orders":
            raise RuntimeError(SECRET_BODY)
        return read(self, request)

    monkeypatch.setattr(memory.MemoryConnector, "read", explode)
    done = team.run("--log-format", "json")
    assert done.code == 3
    assert "unexpected RuntimeError" in done.json["sources"][0]["error"]
    assert SECRET_BODY not in done.err + done.out


def test_a_mistake_is_found_before_anything_is_pulled(team: Team) -> None:
    team.put(1)
    for text, sources, words, expected in (
        ("", '["nothing*"]', [], "no source matches"),
        ('fail_on = ["unknwn > 1"]', '["*"]', [], "did you mean 'unknown'"),
        ('report = ["pdf:x.pdf"]', '["*"]', [], "profiles.nightly.report: unknown format 'pdf'"),
        ('report = ["html:"]', '["*"]', [], "profiles.nightly.report: '' is no file"),
        ('report = ["out/"]', '["*"]', [], "profiles.nightly.report: 'out/' is no file"),
        ('metrics = ""', '["*"]', [], "profiles.nightly.metrics: '' is no file"),
        ('metrics_otlp = "here"', '["*"]', [], "metrics_otlp = 'here' is no URL"),
        ('max_time = "soon"', '["*"]', [], "duration"), ('max_time = "0s"', '["*"]', [], "is no time"),
        ('mode = "move"', '["*"]', [], "mode"),
        ("", '["*"]', ["--metrics-otlp", "http://"], "metrics_otlp = 'http://' is no URL"),
        ("", '["*"]', ["--metrics-otlp", "http://["], "metrics_otlp: 'http://[' is not host:port"),
        ("", '["*"]', ["--metrics-otlp", "http://me:geheim@collector"], "metrics_otlp holds a password"),
    ):  # fmt: skip
        team.profile(text, sources)
        done = team.run(*words)
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), expected
        assert (expected in done.err, "geheim" in done.err) == (True, False), done.err
    assert team.broker.depth("orders.dlq") == 1


def test_a_second_run_says_who_is_at_work(team: Team) -> None:
    with team.store.lock("profile-nightly"):
        busy, skipped = team.run(), team.run("--skip-if-busy")
    assert (busy.code, skipped.code) == (7, 0)
    for done in (busy, skipped):
        assert f"pid {os.getpid()} on {os.uname().nodename}" in done.err


def test_an_analysis_that_fails_costs_nothing_else(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    team.profile('metrics = "dlq.prom"\nreport = ["n.md"]')
    team.put(2)
    team.run()

    def explode(*_arguments: Any, **_options: Any) -> None:
        raise ConnectionError("the JVM is gone")  # as py4j might

    monkeypatch.setattr(job, "analyze", explode)
    team.put(1)
    done = team.run()
    assert (done.code, done.json["analysis"], done.json["reports"]) == (3, None, ["n.md"])
    assert done.json["sources"][0]["captured"] == 1
    assert 'cause="no_verdict"} 1' in Path("dlq.prom").read_text()


def test_a_store_that_is_away_costs_no_analysis_and_a_ledger_that_is_gone_no_report(team: Team) -> None:
    evidence = 'kind = "rocketmq-dedup"\nurl = "sqlite:////nowhere/dedup.db"'
    team.profile(f'mode = "drain"\n[evidence.dedup]\n{evidence}')
    team.put(2)
    done = team.run("--log-format", "json")
    assert (done.code, done.json["analysis"] is not None) == (3, True)
    (missing,) = [event for event in done.events if event["event"] == "evidence_missing"]
    assert (missing["level"], missing["store"]) == ("error", "dedup")
    assert missing["error"].startswith("evidence.dedup: ")
    Path("archive", "ledger.json").write_text('{"format": 1, "server": "postgresql"}')
    nobody_there = 'fail_on = ["unknown > 0"]\n[ledger]\nurl = "postgresql://dlq@127.0.0.1:9/dlq"'
    for more, why in (
        ("", "is on a server (postgresql), which is gone"),
        (nobody_there, "cannot be reached"),
    ):
        team.profile(f'mode = "drain"\nreport = ["n.md"]\n{more}')
        done = team.run("--log-format", "json")
        assert (done.code, done.json["reports"]) == (5 if more else 3, ["n.md"])
        (missing,) = [event for event in done.events if event["event"] == "ledger_missing"]
        assert missing["level"] == "error"
        assert why in missing["error"]


def test_patterns_choose_sources_and_a_limit_leaves_the_rest_for_the_next_run(team: Team) -> None:
    team.profile("limit = 2", sources='["b*", "orders"]')
    team.put(3)
    runs = [team.run("--parallel", "1").json["sources"] for _ in range(3)]
    assert [one["source"] for one in runs[0]] == ["orders", "bills"]
    assert [one[0]["captured"] for one in runs] == [2, 1, 0]


def test_a_mask_covers_the_reports(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    make = report.make
    monkeypatch.setattr(report, "make", lambda *a, **named: seen.append(a[2]) or make(*a, **named))
    team.profile('mask = true\nreport = ["n.md"]')
    team.put(1)
    team.run()
    assert seen == [Settings().mask]


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


def test_what_fails_says_which_step_it_was_and_what_to_do(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.profile(
        'mode = "drain"\nreport = ["n.md"]\n[ledger]\nurl = "postgresql://dlq@127.0.0.1:1/dlq"',
        sources='["orders", "gone"]',
    )
    team.put(1)
    said = team.run().err.splitlines()
    assert any(line.startswith("dlq: gone: ") and line.endswith("; check the name") for line in said)
    assert any("; check [ledger] url, and that its server runs" in line for line in said)

    def explode(*_arguments: Any, **_options: Any) -> None:
        raise ArchiveError("a table is damaged")

    monkeypatch.setattr(report, "make", explode)
    assert any(line.startswith("dlq: report n.md: ") for line in team.run().err.splitlines())


def test_a_usage_mistake_is_a_json_line_as_well(team: Team) -> None:
    team.profile('max_time = "0s"')
    done = team.run("--log-format", "json")
    assert done.code == 2
    assert [event["event"] for event in done.events] == ["run_failed"]
    assert team.run("--log-format", "xml").code == 2
