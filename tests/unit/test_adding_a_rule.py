"""The page about rules is done as it says: its example is added to the table, is printed, and classifies."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-cause-rule.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FUNCTION, TEST = (text for language, text in BLOCKS if language == "python")
[ROW] = (text for language, text in BLOCKS if language == "text")
SCRIPT = """
import dlq.analyzers
dlq.analyzers.__path__.insert(0, {folder!r})

from support.analyzers.letters import record
from dlq.analyzers.rules import Facts, judge as classified
from dlq.cli.app import run

Judge = object

{test}

def judge(*letters):
    return [classified(letter, Facts())._asdict() for letter in letters]

test_what_the_bank_refused_is_an_error_of_the_application(judge)
raise SystemExit(run(["-o", "csv", "rules"]))
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A copy of the rules with the page's example in it."""
    folder = tmp_path / "rules"
    shutil.copytree(ROOT / "analyzers" / "rules", folder, ignore=shutil.ignore_patterns("__pycache__"))
    module = folder / "frameworks.py"
    before, table, rows = module.read_text(encoding="utf-8").partition("RULES: tuple[Rule, ...] = (\n")
    assert table
    module.write_text(f"{before}{FUNCTION}\n\n{table}{ROW}{rows}", encoding="utf-8")
    return folder


def test_the_pages_example_is_printed_by_dlq_rules_and_classifies_letters(rules: Path) -> None:
    script = SCRIPT.format(folder=str(rules.parent), test=TEST)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=rules.parent,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    of_any = [line for line in done.stdout.splitlines() if ",any," in line]
    assert of_any[0].startswith("bank-refusal,any,application_error,framework,")
    assert "the payment gateway parked it: it says what the bank answered in x-bank-refusal" in of_any[0]
