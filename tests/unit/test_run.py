"""`dlq run` on the embedded broker: what it does, what it survives, and what it says."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from archives import write_analysis
from prometheus_client.parser import text_string_to_metric_families

from dlq.analyzers import job
from dlq.archive import analyses, manifests, segments
from dlq.archive.store import LocalStore, Store
from dlq.cli import app
from dlq.cli.time_limit import OutOfTime, time_limit
from dlq.connectors import memory
from dlq.connectors.memory import MemoryBroker, broker_at
from dlq.core.settings import Settings

SECRET_BODY = "card 4111-1111-1111-1111"


@dataclass
class Done:
    """One run: exit code, the JSON on stdout, the lines on stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines()]


class Team:
    """A configuration with two sources on one broker, and one that is not there."""

    def __init__(self, folder: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.url, self._capfd = folder, f"memory:{name}", capfd
        self.broker: MemoryBroker = broker_at(self.url)
        self.store = LocalStore(str(folder / "archive"))
        for queue in ("orders.dlq", "bills.dlq"):
            self.broker.declare(queue)

    def profile(self, text: str = "", sources: str = '["orders", "bills"]') -> None:
        text = text if "mode" in text else f'{text}\nmode = "drain"'
        (self.folder / "dlq.toml").write_text(
            f'[brokers.shop]\nkind = "memory"\nurl = "{self.url}"\n'
            '[sources.orders]\nbroker = "shop"\nqueue = "orders.dlq"\n'
            '[sources.bills]\nbroker = "shop"\nqueue = "bills.dlq"\n'
            '[sources.gone]\nbroker = "shop"\nqueue = "gone.dlq"\n'
            f"[profiles.nightly]\nsources = {sources}\n{text}\n"
        )

    def put(self, count: int, queue: str = "orders.dlq") -> None:
        letters = ({"broker_kind": "rabbitmq", "body_text": f"{SECRET_BODY} {n}"} for n in range(count))
        self.broker.put(queue, *letters)

    def run(self, *words: str) -> Done:
        code = app.run(["-o", "json", "run", "nightly", *words])
        captured = self._capfd.readouterr()
        return Done(code, captured.out, captured.err)


def judged(store: Store, *_arguments: Any, **_options: Any) -> analyses.Analysis:
    """In place of Spark: every letter is unknown."""
    ids = [i for m in manifests.every(store) for i in segments.record_ids(store, m).to_pylist()]
    name = f"{time.time_ns()}"
    write_analysis(store, name, [{"record_id": i, "cause": "unknown", "advice": "hold"} for i in ids])
    return replace(analyses.load(store, name), records=len(ids))


@pytest.fixture
def team(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Team]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job, "analyze", judged)
    here = Team(tmp_path, tmp_path.name, capfd)
    here.profile()
    yield here
    memory._brokers.clear()


def test_a_run_pulls_analyzes_and_reports(team: Team) -> None:
    team.profile('report = ["html:out/n.html", "out/n.md", "json:out/n.json"]\nmetrics = "out/dlq.prom"')
    team.put(5)
    team.put(2, "bills.dlq")
    done = team.run()
    assert done.code == 0
    assert list(done.json) == ["profile", "sources", "analysis", "reports", "metrics", "alarms", "seconds"]
    assert [(s["source"], s["captured"], s["left"]) for s in done.json["sources"]] == [
        ("orders", 5, 0),
        ("bills", 2, 0),
    ]
    assert done.json["analysis"] == analyses.ids(team.store)[-1]
    assert done.json["reports"] == ["out/n.html", "out/n.md", "out/n.json"]
    assert json.loads(Path("out/n.json").read_text())["letters"] == 7
    assert "<html" in Path("out/n.html").read_text()


def test_an_empty_night_is_a_good_night(team: Team) -> None:
    team.profile('report = ["out/n.md"]\nfail_on = ["unknown > 0"]\nmetrics = "dlq.prom"')
    done = team.run()
    assert (done.code, done.json["analysis"], done.json["reports"]) == (0, None, [])
    assert last_success(team) > time.time() - 60


def test_one_source_that_fails_does_not_stop_the_others(team: Team) -> None:
    team.profile(sources='["*"]')
    team.put(3, "bills.dlq")
    done = team.run()
    assert done.code == 3
    by_name = {s["source"]: s for s in done.json["sources"]}
    assert by_name["gone"] == {"source": "gone", "error": "no queue 'gone.dlq' on the memory broker"}
    assert by_name["bills"]["captured"] == 3
    assert "dlq: gone: no queue" in done.err


def test_when_every_source_fails_alike_the_code_says_why(team: Team) -> None:
    team.profile(sources='["gone"]')
    assert team.run().code == 4


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


def test_patterns_choose_sources(team: Team) -> None:
    team.profile(sources='["b*", "orders"]')
    assert [s["source"] for s in team.run().json["sources"]] == ["orders", "bills"]


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        ("", '["nothing*"]', "no source matches"),
        ('fail_on = ["unknwn > 1"]', '["*"]', "did you mean 'unknown'"),
        ('report = ["pdf:x.pdf"]', '["*"]', "profiles.nightly.report: unknown format 'pdf'"),
        ('metrics_otlp = "here"', '["*"]', "metrics_otlp = 'here' is no URL"),
        ('max_time = "soon"', '["*"]', "duration"),
        ('max_time = "0s"', '["*"]', "more than 0"),
        ('mode = "move"', '["*"]', "mode"),
    ],
)
def test_a_mistake_in_a_profile_is_found_before_anything_is_done(
    team: Team, text: str, sources: str, expected: str
) -> None:
    team.profile(text, sources)
    team.put(1)
    done = team.run()
    assert done.code == 2
    assert expected in done.err
    assert len(done.err.splitlines()) == 1
    assert team.broker.depth("orders.dlq") == 1


def test_a_second_run_says_who_is_at_work(team: Team) -> None:
    with team.store.lock("profile-nightly"):
        busy, skipped = team.run(), team.run("--skip-if-busy")
    assert (busy.code, skipped.code) == (7, 0)
    for done in (busy, skipped):
        assert f"pid {os.getpid()} on {os.uname().nodename}" in done.err


def test_the_alarm_gets_json_on_stdin_and_no_shell(team: Team, tmp_path: Path) -> None:
    hook = tmp_path / "notify team"
    hook.write_text('#!/bin/sh\n(printf %s "$1"; cat) > told\n')
    hook.chmod(0o700)
    bounds = '["total > 2", "unknown > 90%", "held > 0"]'
    team.profile(f'fail_on = {bounds}\non_alarm = ["{hook}", "$HOME;"]')
    team.put(4)
    done = team.run()
    assert done.code == 5
    assert done.json["alarms"] == ["total > 2: total is 4", "unknown > 90%: unknown is 100.0% (4 of 4)"]
    told = Path("told").read_text()
    assert told.startswith("$HOME;{")
    document = json.loads(told.removeprefix("$HOME;"))
    assert (document["profile"], document["alarms"], document["counts"]["unknown"]) == (
        "nightly",
        done.json["alarms"],
        4,
    )
    assert SECRET_BODY not in told


def test_an_alarm_that_hangs_is_killed_with_its_children(team: Team) -> None:
    hook = '["/bin/sh", "-c", "sleep 600 & echo $! > child; wait"]'
    team.profile(f'fail_on = ["total > 0"]\non_alarm = {hook}\nalarm_timeout = "5s"')
    team.put(1)
    started = time.monotonic()
    done = team.run()
    assert time.monotonic() - started < 60
    assert done.code == 5
    assert "on_alarm: /bin/sh did not end within 5s" in done.err
    until = time.monotonic() + 10
    while not is_dead(int(Path("child").read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that init has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_hook_that_is_not_there_is_one_line_and_the_alarm_stays(team: Team) -> None:
    team.profile('fail_on = ["total > 0"]\non_alarm = ["/nowhere/hook"]')
    team.put(1)
    done = team.run()
    assert done.code == 5
    assert "on_alarm: /nowhere/hook does not start: No such file" in done.err


def last_success(team: Team) -> float:
    """As the monitoring reads it."""
    text = (team.folder / "dlq.prom").read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return float(families["dlq_last_success_timestamp_seconds"].samples[0].value)


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


def test_an_analysis_that_fails_costs_neither_the_pull_nor_the_metrics(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.profile('metrics = "dlq.prom"\nreport = ["n.md"]')
    team.put(2)
    team.run()
    monkeypatch.setattr(job, "analyze", lambda *_arguments, **_options: explode_spark())
    team.put(1)
    done = team.run()
    assert (done.code, done.json["analysis"], done.json["reports"]) == (3, None, ["n.md"])
    assert done.json["sources"][0]["captured"] == 1
    assert 'cause="no_verdict"} 1' in Path("dlq.prom").read_text()


def explode_spark() -> None:
    """What py4j might throw."""
    raise ConnectionError("the JVM is gone")


def test_a_store_that_is_away_costs_no_analysis(team: Team) -> None:
    team.profile(
        'mode = "drain"\n[evidence.dedup]\nkind = "rocketmq-dedup"\nurl = "sqlite:////nowhere/dedup.db"'
    )
    team.put(2)
    done = team.run("--log-format", "json")
    assert (done.code, done.json["analysis"] is not None) == (3, True)
    (missing,) = [event for event in done.events if event["event"] == "evidence_missing"]
    assert (missing["level"], missing["store"]) == ("error", "dedup")
    assert missing["error"].startswith("evidence.dedup: ")


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


def test_a_limit_leaves_the_rest_for_the_next_run(team: Team) -> None:
    team.profile("limit = 2")
    team.put(3)
    assert [team.run().json["sources"][0]["captured"] for _ in range(3)] == [2, 1, 0]


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


def test_a_mask_covers_the_reports(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    from dlq.reports import report

    make: Callable[..., Any] = report.make
    monkeypatch.setattr(report, "make", lambda *a: seen.append(a[2]) or make(*a))
    team.profile('mask = true\nreport = ["n.md"]')
    team.put(1)
    team.run()
    assert seen == [Settings().mask]


def test_a_step_within_its_time_is_left_alone() -> None:
    with time_limit(30):
        time.sleep(0.01)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    with pytest.raises(OutOfTime), time_limit(0.05):
        time.sleep(30)
