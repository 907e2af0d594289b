"""Shell completion: it offers what is there, and stays silent about everything else."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from support.archives import write_analysis
from support.builders import memory_sources

from dlq.archive.schema import SEGMENT
from dlq.archive.storage.store import LocalStore
from dlq.archive.views import LS_COLUMNS
from dlq.cli import completion
from dlq.cli.app import run
from dlq.core.record import COLUMNS

CONFIG = f"""
archive = "archive"
{memory_sources("memory:completion", "orders", "payments")}
[profiles.nightly]
sources = ["*"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, two plans, and an analysis."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dlq.toml").write_text(CONFIG)
    write_analysis(LocalStore("archive"), "20260102T000000-000001.1", [])
    plans = tmp_path / "archive" / "plans"
    plans.mkdir()
    for name in ("p-1.jsonl", "p-1.edits.jsonl", "p-2.jsonl", ".p-3.jsonl.tmp"):
        (plans / name).touch()
    return tmp_path


def offered(completer: completion.Completer, typed: str, **options: Any) -> list[str]:
    context = typer.Context(typer.core.TyperCommand("dlq"))
    context.params = options
    return completer(context, typed)


@pytest.mark.usefixtures("folder")
def test_sources_profiles_plans_analyses_and_columns_are_known() -> None:
    assert offered(completion.sources, "") == ["orders", "payments"]
    assert offered(completion.sources, "pa") == ["payments"]
    assert offered(completion.profiles, "") == ["nightly"]
    assert offered(completion.plans, "p") == ["p-1", "p-2"]
    assert offered(completion.analyses, "2026") == ["20260102T000000-000001.1"]


def test_what_could_be_more_than_a_word_is_not_offered(folder: Path) -> None:
    """Who may write into an archive gives files their names, and a shell takes what is offered as it is."""
    for name in ("$(reboot)", "`x`", "a b", "a;b", "-h", "x'y", "a\nb", "\\x"):
        (folder / "archive" / "plans" / f"{name}.jsonl").touch()
        analysis = folder / "archive" / "analyses" / name
        analysis.mkdir()
        (analysis / "analysis.json").touch()
    assert offered(completion.plans, "") == ["p-1", "p-2"]
    assert offered(completion.analyses, "") == ["20260102T000000-000001.1"]

    assert offered(completion.columns, "cause,exception") == ["cause,exception_class"]
    assert "body_sha256" in offered(completion.columns, "body_")
    assert offered(completion.condition, "laps > 1 and (adv") == ["laps > 1 and (advice"]
    assert completion.LS_COLUMNS == LS_COLUMNS
    assert set(COLUMNS) == set(SEGMENT.names)


def test_a_configuration_that_cannot_be_read_offers_nothing(folder: Path) -> None:
    for text in ("archive = [", "[sources.a]\nbroker = 'gone'"):
        (folder / "dlq.toml").write_text(text)
        assert offered(completion.sources, "") == []
    (folder / "dlq.toml").unlink()
    assert offered(completion.sources, "") == []
    assert offered(completion.plans, "", config="no/such/file") == []


@pytest.mark.parametrize(("typed", "expected"), [
    ("dlq pull --mode d", "drain"), ("dlq -o js", "json jsonl"), ("dlq ls -o js", "json jsonl"),
    ("dlq replay plan --output c", "csv"), ("dlq report --format h", "html"),
    ("dlq cron nightly --format s", "systemd"), ("dlq run nightly --log-format j", "json"),
    ("dlq pull orders p", "payments"),
])  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_values_are_offered_where_an_option_has_a_few(
    typed: str, expected: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_DLQ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with pytest.raises(SystemExit):
        run([])
    assert capfd.readouterr().out.split() == expected.split()


def test_a_shell_gets_them_without_what_takes_long_to_import(folder: Path) -> None:
    words = {"_DLQ_COMPLETE": "complete_bash", "COMP_WORDS": "dlq pull o", "COMP_CWORD": "2", **os.environ}
    command = [sys.executable, "-X", "importtime", "-m", "dlq.cli"]
    done = subprocess.run(command, env=words, cwd=folder, capture_output=True, text=True, check=True)
    told = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in told}
    assert done.stdout.split() == ["orders"]
    assert all(line.startswith("import time:") for line in told), "and nothing else is said"
    assert "typer" in imported
    assert not imported & {"duckdb", "pyarrow", "pyspark", "sqlalchemy", "confluent_kafka", "pika"}
