"""Twenty nights of cron with everything that goes wrong in them: at the end the books balance."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.builders import in_file, memory_sources
from support.waiting import PATIENCE

from dlq.connectors.memory import MemoryBroker

FAULTY = str(Path(__file__).with_name("faulty.py"))
LETTERS_A_NIGHT = 120
CONFIGURATION = """
[profiles.nightly]
mode = "drain"
analyze = false
max_time = "2m"
metrics = "metrics/dlq.prom"
[profiles.weekly]
mode = "drain"
max_time = "5m"
report = ["html:reports/weekly.html"]
fail_on = ["in_doubt > 0", "total < 1"]
metrics = "metrics/weekly.prom"
[retain]
max_age = "0s"
[spark]
master = "local[2]"
"""
NIGHTS = (
    "none", "broker-away", "disk-full:1", "kill-9:3", "none", "connection-cut:100", "kill-9:5",
    "clock-jump:400", "kill-9:6", "kill-9:7", "disk-full:5", "kill-9:8", "clock-jump:-30", "kill-9:9",
    "broker-away", "kill-9:10", "kill-9:12", "disk-full:8", "kill-9:14", "none",
)  # fmt: skip
"""What goes wrong in each night. Flushes 3 to 14 are those of segment, manifest, acknowledgement, settled."""
CODES = {
    "none": {0}, "broker-away": {4}, "disk-full": {3}, "kill-9": {-9}, "clock-jump": {0},
    "connection-cut": {0, 3},  # 3 where some were acknowledged before: no answer says that they are settled
}  # fmt: skip
RETENTIONS = {6: "kill-9:2", 9: "none", 12: "kill-9:5", 15: "disk-full:3", 18: "kill-9:8"}
"""Nights in which the archive is kept small as well, and what goes wrong in that."""


class House:
    """One team's folder: configuration, broker, archive."""

    def __init__(self, folder: Path, dlq: Callable[..., Any]) -> None:
        self.folder, self.dlq = folder, dlq
        text = memory_sources(in_file(folder), "orders", "bills") + CONFIGURATION
        (folder / "dlq.toml").write_text(text)
        self.broker = MemoryBroker(str(folder / "broker.db"))
        for queue in ("orders.dlq", "bills.dlq", "orders"):
            self.broker.declare(queue)
        self.put_in: Counter[str] = Counter()

    def letters_die(self, night: int) -> None:
        for queue in ("orders.dlq", "bills.dlq"):
            bodies = [f"{queue} of night {night}, letter {n}" for n in range(LETTERS_A_NIGHT)]
            self.broker.put(queue, *({"broker_kind": "rabbitmq", "body_text": body} for body in bodies))
            self.put_in.update(bodies)

    def with_fault(self, fault: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, FAULTY, fault, *words]
        given = {**os.environ, "XDG_CONFIG_HOME": str(self.folder / "xdg")}
        return subprocess.run(command, cwd=self.folder, env=given, capture_output=True, text=True)

    def night(self, number: int, fault: str) -> None:
        self.letters_die(number)
        done = self.with_fault(fault, "-o", "json", "run", "nightly", "--log-format", "json")
        kind = fault.partition(":")[0]
        assert done.returncode in CODES[kind], (fault, done.stderr)
        if number in RETENTIONS:
            retained = self.with_fault(RETENTIONS[number], "-o", "json", "retain", "--apply", "--compact")
            assert retained.returncode in (0, 3, -9), retained.stderr

    def replay_what_is_there(self) -> None:
        plan = self.dlq("replay", "plan", "--any-advice", "--to", "queue:orders", "-o", "json")
        applied = self.dlq("replay", "apply", plan.json["plan"], "-o", "json")
        assert applied.code == 0, applied.err

    @property
    def archived(self) -> Counter[str]:
        """Bodies in the archive, and of letters that came back to the queue and were purged from it."""
        rows = self.dlq("query", "select body::varchar as body from records", "-o", "jsonl").rows
        return Counter(row["body"] for row in rows)


@pytest.fixture
def house(tmp_path: Path, dlq: Callable[..., Any]) -> House:
    return House(tmp_path, dlq)


def test_twenty_nights_end_with_books_that_balance(house: House) -> None:
    for number, fault in enumerate(NIGHTS):
        house.night(number, fault)
        if number in (8, 14):
            house.replay_what_is_there()
    last = house.dlq("-o", "json", "run", "nightly")
    assert last.code == 0, last.err

    assert house.broker.depth("orders.dlq") == house.broker.depth("bills.dlq") == 0
    verified = house.dlq("-o", "json", "verify")
    assert (verified.code, verified.json["balanced"]) == (0, True), verified.err
    sources = verified.json["sources"]
    assert sum(books["captured"] for books in sources) == house.put_in.total()
    purged = sum(books["purged"] for books in sources)
    assert purged > 0
    archived = house.archived
    sent = Counter(str(letter["body_text"]) for letter in house.broker.letters("orders"))
    assert max(archived.values()) == max(sent.values()) == 1
    assert archived.total() + purged == house.put_in.total()
    assert set(archived) | set(sent) == set(house.put_in)


def test_cron_s_line_works_where_nothing_is_set(house: House) -> None:
    house.letters_die(1)
    printed = house.dlq("cron", "nightly", "--every", "15m", "-o", "json").json
    command = printed["crontab"].split(maxsplit=5)[5].replace(r"\%", "%")
    done = subprocess.run(["/bin/sh", "-c", command], cwd="/", env={}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert house.archived.total() == 2 * LETTERS_A_NIGHT


@pytest.mark.spark
def test_a_real_run_analyzes_reports_and_counts(house: House) -> None:
    house.letters_die(1)
    done = house.dlq("-o", "json", "run", "weekly", "--log-format", "json")
    assert done.code == 0, done.err
    assert done.json["analysis"]
    assert done.json["reports"] == ["reports/weekly.html"]
    events = [json.loads(line) for line in done.err.splitlines()]
    assert [e["records"] for e in events if e["event"] == "analyzed"] == [2 * LETTERS_A_NIGHT]
    assert 'cause="unknown"} 120' in (house.folder / "metrics/weekly.prom").read_text()
    small = house.dlq("-o", "json", "retain", "--compact", "--apply")
    assert small.json["applied"] is True
    assert house.dlq("ls", "--where", "cause = 'unknown'", "--limit", "0", "-o", "csv").out.count("\n") == 241


@pytest.mark.spark
def test_an_analysis_is_stopped_when_the_time_is_over(house: House) -> None:
    house.letters_die(1)
    path = house.folder / "dlq.toml"
    by_spark = "\n[analysis]\nspark_from = 1\n"  # the start of a JVM alone takes longer than there is time
    path.write_text(path.read_text().replace('max_time = "5m"', 'max_time = "4s"') + by_spark)
    done = house.dlq("-o", "json", "run", "weekly")
    assert done.code == 3, done.err
    assert "analysis: stopped: no time is left" in done.err
    assert done.json["seconds"] < PATIENCE
    assert "Traceback" not in done.err
