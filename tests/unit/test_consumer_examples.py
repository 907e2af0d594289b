"""The examples of docs/for-consumers.md do in each language what the page says, where its runtime is there.

Each program gets four deliveries: a new order, a replay, the same replay again, and a third lap.
"""

import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.jvm import QUICK

from dlq.core.headers import provenance

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "support" / "consumers"
MARK = "// The example comes here.\n"
PAGE = (ROOT / "docs" / "for-consumers.md").read_text(encoding="utf-8")
TOLD = "True True True False\nbooked 1 2\nmailed 1\n"
"""What the deliveries return, the orders that were booked, and those of which a mail went out."""


def example(language: str) -> str:
    """The one block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_page_names_each_mark_that_a_replay_leaves() -> None:
    for name in (provenance.REPLAY_ID, provenance.REPLAY_LAP, provenance.REPLAY_OF):
        assert f"| `{name}` |" in PAGE
        assert f"`{name}`" in (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_python() -> None:
    known: dict[str, Any] = {}
    exec(compile(example("python"), "for-consumers.md", "exec"), known)
    database, mailed, answers = sqlite3.connect(":memory:"), [], []
    database.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
    database.execute("CREATE TABLE bookings (id TEXT, amount INTEGER)")
    on_message = known["consumer"](database, mailed.append)
    channel = SimpleNamespace(
        basic_ack=lambda _tag: answers.append(True),
        basic_reject=lambda _tag, requeue: answers.append(requeue),
    )
    for headers, number in ((None, 1), ({"dlq_replay_lap": "1"}, 2), ({"dlq_replay_lap": "1"}, 2),
                            ({"dlq_replay_lap": "3"}, 3)):  # fmt: skip
        body = b'{"id": "%d", "amount": 5}' % number
        on_message(channel, SimpleNamespace(delivery_tag=1), SimpleNamespace(headers=headers), body)
    assert answers == [True, True, True, False]
    assert [row[0] for row in database.execute("SELECT id FROM bookings")] == ["1", "2"]
    assert mailed == ["1"]


RUN = {
    "java": ("*.java", f"javac {' '.join(f'-J{one}' for one in QUICK)} -d classes *.java"
             f" && java {' '.join(QUICK)} -cp classes Main"),
    "go": ("main.go", "go run main.go"),
    "js": ("main.js", "node main.js"),
    "csharp": ("Main.cs*", "dotnet run"),
}  # fmt: skip
"""Language of an example -> the programs around it, and how they run."""


@pytest.mark.parametrize("language", RUN)
def test_an_example_does_what_the_page_says(language: str, tmp_path: Path) -> None:
    files, command = RUN[language]
    if shutil.which(command.split()[0]) is None:
        pytest.skip("not installed")
    for path in PROGRAMS.glob(files):
        (tmp_path / path.name).write_text(path.read_text().replace(MARK, example(language)))
    done = subprocess.run(command, cwd=tmp_path, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, TOLD), done.stderr
