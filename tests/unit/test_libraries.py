"""What `make` says while pip fetches and builds, and what runs beside that."""

import subprocess
import sys
from pathlib import Path

from support import needs
from support.rows import each_row


@each_row("name", ["needs.py", *sorted(program for program, *_ in needs.FETCHED.values())])
def test_what_fetches_a_broker_needs_no_library_as_it_runs_while_these_are_fetched(name: str) -> None:
    program = str(Path(needs.__file__).parent / name)
    imported = f"import runpy; runpy.run_path({program!r}, run_name='imported')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", imported], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
