"""`dlq analyze` says when letters made a rule fail, and ends with 3."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.running import judged

from dlq.analyzers import analysis as job
from dlq.archive.store import LocalStore
from dlq.cli.app import run

Analyze = Callable[[int], tuple[int, str]]


@pytest.fixture
def analyze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Analyze:
    """`dlq analyze` without Spark, of an archive in which so many letters break a rule."""
    monkeypatch.chdir(tmp_path)
    write_segment(LocalStore(str(tmp_path / "archive")), "p-0", [letter(1)])

    def call(broken: int) -> tuple[int, str]:
        def done(*arguments: Any, **options: Any) -> Any:
            return replace(judged(*arguments, **options), extra={"broken": broken, "parts": []})

        monkeypatch.setattr(job, "analyze", done)
        code = run(["-o", "json", "analyze"])
        return code, capfd.readouterr().err

    return call


SEE = "see dlq query \"SELECT record_id, evidence FROM verdicts WHERE rule = 'broken-rule'\""


@pytest.mark.parametrize(
    ("broken", "code", "said"),
    [
        (0, 0, ""),
        (1, 3, f"dlq: 1 letter made a rule fail and is unknown; {SEE}\n"),
        (1234, 3, f"dlq: 1,234 letters made a rule fail and are unknown; {SEE}\n"),
    ],
)
def test_letters_that_made_a_rule_fail_are_counted(
    analyze: Analyze, broken: int, code: int, said: str
) -> None:
    assert analyze(broken) == (code, said)
