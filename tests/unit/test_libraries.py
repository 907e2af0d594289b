"""What `make` says while pip fetches and builds, and what runs beside that."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import needs
from support.libraries import long_step
from support.rows import each_row


@pytest.mark.parametrize(("line", "step"), [
    ("  Downloading pyspark-4.0.1.tar.gz (434.2 MB)\n", "Downloading pyspark-4.0.1.tar.gz (434.2 MB)"),
    ("Downloading duckdb-2.0-cp311.whl (20 MB)\n", "Downloading duckdb-2.0-cp311.whl (20 MB)"),
    ("  Building wheel for pyspark (pyproject.toml): started\n", "Building wheel for pyspark"),
    ("Installing collected packages: py4j, pyspark\n", "Installing collected packages"),
    ("Downloading rich-14.whl (243 kB)\n", None),
    ("Collecting pika<2,>=1.4.4\n", None),
    ("  Building wheel for pyspark (pyproject.toml): finished with status 'done'\n", None),
])  # fmt: skip
def test_steps_that_take_long_are_said_once(line: str, step: str | None) -> None:
    assert long_step(line) == step


@each_row("name", ["needs.py", *sorted(program for program, *_ in needs.FETCHED.values())])
def test_what_fetches_a_broker_needs_no_library_as_it_runs_while_these_are_fetched(name: str) -> None:
    program = str(Path(needs.__file__).parent / name)
    imported = f"import runpy; runpy.run_path({program!r}, run_name='imported')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", imported], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
