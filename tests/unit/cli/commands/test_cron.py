"""What `dlq cron` prints is read by the programs it is for, and runs what it says."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from cronsim import CronSim
from support.rows import each_row

from dlq.cli import app, schedules
from dlq.cli.schedules import Call
from dlq.core.errors import UsageError

BROKER = '[brokers.shop]\nkind = "rabbitmq"\nurl = "amqp://dlq@127.0.0.1:1/"\npassword_env = "SHOP_SECRET"\n'
PROFILE = '[sources.orders]\nbroker = "shop"\nqueue = "q"\n[profiles.nightly]\nmax_time = "10m"\n'
CRONTAB = shutil.which("crontab")
CHECKS = (("-T", "-T"), ("-n", "dry run"))
"""Flags that only check a file, and what the usage says where crontab has them."""
SYSTEMD = shutil.which("systemd-analyze")
CALENDARS = {"1m": "*:*", "15m": "*:0/15", "1h": "*:00", "6h": "*-*-* 0/6:00:00", "1d": "*-*-* 03:00:00"}
INTERVALS = schedules.KNOWN.split(", ")
HARD_FOLDER = '/srv/50% of $HOME\'s "archive"'


Printed = Callable[..., tuple[int, str]]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Printed:
    """Run `dlq cron nightly WORDS...` in a folder whose name needs quoting; its exit code and output."""
    monkeypatch.setenv("SHOP_SECRET", "hush-hush")

    def run(*words: str, profile: str = "nightly", folder: str = "50% off's") -> tuple[int, str]:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "dlq.toml").write_text(BROKER + PROFILE)
        monkeypatch.chdir(place)
        return app.run(["cron", profile, *words]), capfd.readouterr().out

    return run


def call(every: str = "15m", **changes: Any) -> Call:
    known: dict[str, Any] = {
        "profile": "nightly", "every": every, "words": ["/opt/my dlq/bin/dlq", "run", "nightly"],
        "folder": HARD_FOLDER, "environment": {"PATH": "/opt/100%/bin:/bin"}, "secrets": [],
        "max_seconds": 600.0, "image": "dlq:1",
    }  # fmt: skip
    return Call(**{**known, **changes})


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TZ": "UTC"}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


def seconds_between_runs(line: str) -> set[float]:
    times = CronSim(" ".join(line.split()[:5]), datetime(2026, 11, 2, tzinfo=UTC))
    moments = [next(times) for _ in range(200)]
    return {(b - a).total_seconds() for a, b in pairwise(moments)}


@each_row("every", INTERVALS)
def test_the_crontab_line_fires_as_often_as_it_says(every: str) -> None:
    assert seconds_between_runs(schedules.crontab(call(every))) == {schedules.seconds(every)}


@each_row("every", INTERVALS)
def test_systemd_fires_as_often_as_it_says(every: str) -> None:
    if every in CALENDARS:
        assert schedules.schedule(every).calendar == CALENDARS[every]
    if SYSTEMD is not None:
        assert seconds_between_events(SYSTEMD, every) == {schedules.seconds(every)}


def seconds_between_events(program: str, every: str) -> set[float]:
    """What systemd itself makes of the calendar event."""
    since, event = "--base-time=2026-11-02 00:00:00 UTC", schedules.schedule(every).calendar
    said = ask(program, "calendar", "--iterations=5", since, event)
    times = re.findall(r"(?:Next elapse|Iter\. #\d): \w+ (\S+ \S+)", said.stdout)
    return {(b - a).total_seconds() for a, b in pairwise(map(datetime.fromisoformat, times))}


def test_what_cron_cannot_express_is_refused(printed: Printed) -> None:
    for every in ("7m", "90m", "30s", "5h", "2d", "0m", "45m", "2w"):
        with pytest.raises(UsageError, match="cron cannot express"):
            schedules.crontab(call(every))
    for words in (("--every", "7m"), ("--every", "often"), ("--format", "kubernets")):
        assert printed(*words)[0] == 2, words
    assert printed(profile="nigthly")[0] == 2


def test_every_percent_sign_of_the_crontab_line_is_escaped() -> None:
    line = schedules.crontab(call())
    assert line.count("%") == line.count(r"\%") == 2


def crontab_accepts(path: Path) -> bool:
    """What crontab itself says; five fields and a command where there is none that can check."""
    usage = ask("crontab", "-h") if CRONTAB else None
    check = next((flag for flag, mark in CHECKS if usage and mark in usage.stderr + usage.stdout), None)
    if check is None:
        return re.fullmatch(r"(?:[\d*/]+ ){5}cd .+\n", path.read_text()) is not None
    return ask("crontab", check, str(path)).returncode == 0


def test_crontab_itself_accepts_the_line(tmp_path: Path) -> None:
    path = tmp_path / "crontab"
    for every in INTERVALS:
        path.write_text(schedules.crontab(call(every)) + "\n")
        assert crontab_accepts(path), every
    path.write_text("every night please\n")
    assert not crontab_accepts(path)


def complaints(folder: Path, units: dict[str, str]) -> str:
    """What systemd says against the units; nothing where the machine has no systemd."""
    for name, text in units.items():
        (folder / name).write_text(text)
    if SYSTEMD is None:
        return ""
    said = ask(SYSTEMD, "verify", "--man=no", *(str(folder / name) for name in units)).stderr
    return "\n".join(line for line in said.splitlines() if "dlq-" in line)


def write_script(path: Path, text: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("secrets", [[], ["SHOP_SECRET"]])
def test_systemd_accepts_the_units(tmp_path: Path, secrets: list[str]) -> None:
    program = write_script(tmp_path / "my 100% dlq")
    units = schedules.systemd(call(words=[str(program), "run", "$nightly"], secrets=secrets))
    assert list(units) == ["dlq-nightly.service", "dlq-nightly.timer"]
    assert complaints(tmp_path, units) == ""
    broken = {name: text.replace("OnCalendar=*", "OnCalendar=soon") for name, text in units.items()}
    assert SYSTEMD is None or "soon" in complaints(tmp_path, broken)


@each_row("every", INTERVALS)
@each_row("limit", [None, 600.0])
def test_kubernetes_accepts_the_cron_job(every: str, limit: float | None) -> None:
    text = schedules.kubernetes(call(every, profile="Night.ly_1", secrets=["SHOP_SECRET"], max_seconds=limit))
    job = yaml.safe_load(text)
    kubernetes_validate.validate(job, "1.31", strict=True)
    assert job["metadata"]["name"].startswith("dlq-night-ly-1-")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"fsGroup": 10001}, "the image's user may write into the claim"
    assert seconds_between_runs(job["spec"]["schedule"]) == {schedules.seconds(every)}


LONG = "a" * 48
ALIKE = [
    "a.b", "a_b", "a-b", "A-b", "a--b", "a-b-", "a.b_", LONG, f"{LONG}a", f"{LONG}b", f"{LONG[:-1]}.",
    "9" * 300,
]  # fmt: skip


def test_profiles_that_become_alike_are_jobs_of_their_own() -> None:
    jobs = [yaml.safe_load(schedules.kubernetes(call(profile=profile))) for profile in ALIKE]
    for job in jobs:
        kubernetes_validate.validate(job, "1.31", strict=True)
    names = [job["metadata"]["name"] for job in jobs]
    assert len({*names}) == len(ALIKE)
    assert all(re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) and len(name) <= 52 for name in names)
    assert (names[ALIKE.index("a-b")], names[ALIKE.index(LONG)]) == ("dlq-a-b", f"dlq-{LONG}")


LINE_BREAKS = ["a\n* * * * * evil", "a\rb", "a\0b", "a\x1b[2J", "a\u2028b", "a\udcffb"]


@each_row("text", LINE_BREAKS)
@each_row("field", ["folder", "words", "environment"])
def test_what_would_begin_a_line_of_its_own_is_refused(field: str, text: str) -> None:
    value: Any = {"folder": text, "words": ["/bin/dlq", text], "environment": {"PATH": text}}[field]
    with pytest.raises(UsageError, match="cannot stand in a schedule"):
        call(**{field: value})


def test_a_folder_with_a_line_break_prints_no_schedule(printed: Printed) -> None:
    assert printed(folder="a\n* * * * * touch evil #") == (2, "")


HARD_NAMES = [
    '50% of $HOME\'s "archive"', "50% of", r"back\slash", r"two\\slashes", r"slash\%percent", "ends\\",
    "$HOME", "a'b", 'a"b', "a;b #c", "é ☕",
]  # fmt: skip


def handed_to_sh(command: str, doubled: bool) -> str:
    """What cron makes of its sixth field. Some crons take a doubled backslash for one."""
    pattern = r"\\([%\\])" if doubled else r"\\(%)"
    before_input = re.match(r"(?:\\.|[^%\\])*" if doubled else r"(?:\\%|[^%])*", command)
    assert before_input is not None
    return re.sub(pattern, r"\1", before_input[0])


@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("name", HARD_NAMES)
def test_every_cron_hands_the_shell_the_same_words(tmp_path: Path, name: str, doubled: bool) -> None:
    folder = tmp_path / name
    script = write_script(folder / "say", 'printf "%s\\n" "$PWD" "$X" "$@" > said\n')
    line = schedules.crontab(call(folder=str(folder), words=[str(script), name], environment={"X": name}))
    command = handed_to_sh(line.split(maxsplit=5)[5], doubled)
    subprocess.run(["/bin/sh", "-c", command], env={}, check=True)
    assert (folder / "said").read_text().splitlines() == [str(folder), name, name]


@pytest.mark.skipif(SYSTEMD is None, reason="no systemd to ask")
@pytest.mark.parametrize("name", [*HARD_NAMES, "ends with a blank "])
def test_systemd_itself_finds_program_and_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    program = write_script(folder / "dlq")
    units = schedules.systemd(call(folder=str(folder), words=[str(program), name], environment={"X": name}))
    assert complaints(tmp_path, units) == ""
    service = units["dlq-nightly.service"]
    assert f"WorkingDirectory={folder}".replace("%", "%%") in service
    assert not re.search(r"[ \\]$", service, re.MULTILINE)


def test_paths_are_absolute_and_passwords_absent(printed: Printed) -> None:
    code, out = printed("--every", "1h", "-o", "json")
    document = json.loads(out)
    assert (code, list(document)) == (0, ["crontab", "systemd", "kubernetes"])
    assert "hush-hush" not in out
    line = document["crontab"].replace(r"\%", "%")
    words = shlex.split(line.split("&& ")[1])
    assert all(os.path.isabs(word) for word in (words[1], words[3]))
    assert Path(words[3]).name == "dlq.toml"
    assert "EnvironmentFile=" in document["systemd"]["dlq-nightly.service"]


def test_a_format_alone_is_what_its_program_reads(printed: Printed) -> None:
    whole = json.loads(printed("-o", "json")[1])
    code, everything = printed()
    assert code == 0
    assert printed("--format", "crontab")[1] == whole["crontab"] + "\n"
    assert yaml.safe_load(printed("--format", "kubernetes")[1])["kind"] == "CronJob"
    units = printed("--format", "systemd")[1]
    for name, text in whole["systemd"].items():
        assert f"# /etc/systemd/system/{name}\n{text.rstrip()}" in units
    assert units.rstrip() in everything
    assert everything.startswith(f"# crontab -e\n{whole['crontab']}\n\n# /etc/systemd")
    assert whole["crontab"].startswith("*/15 * * * * cd ")
    assert "OnCalendar=*:0/15" in units
    assert "kind: CronJob" in everything
    assert list(json.loads(printed("--format", "systemd", "-o", "json")[1])) == ["systemd"]
