"""A server whose questions others ask has a limit of memory, and what it starts has none."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.archives import letter, write_segment

from dlq.archive.storage.store import LocalStore
from dlq.cli import app
from dlq.cli.app import run
from dlq.cli.commands import query
from dlq.cli.memory import bound_memory
from dlq.web import jobs

BOMB = """
import duckdb
from dlq.archive import user_sql
from dlq.cli.memory import bound_memory
from dlq.core.errors import ArchiveError
bound_memory(2**30)
connection = duckdb.connect()
connection.execute("SET enable_progress_bar = false")  # as all of ours
try:
    [*user_sql.run(connection, "select repeat('x', 100000000) from range(100)").rows]
except ArchiveError as error:
    print(error)
"""


def test_sql_that_makes_long_texts_of_short_ones_fails_in_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, check=True)
    assert "this takes more than" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_question_of_the_shell_is_bound_as_long_as_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_segment(LocalStore(str(tmp_path / "archive")), "p-0", [letter(1)])
    most = 2**28
    monkeypatch.setattr(query, "OF_SQL", most)
    monkeypatch.setattr(app, "bound_memory", lambda: bound_memory(most))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    takes_12_gib = (
        "damerau_levenshtein(repeat('a', 40000), repeat('b', 40000)) > 1"  # of which no limit knows
    )
    for words in (["query", f"select {takes_12_gib}"], ["ls", "--where", takes_12_gib]):
        assert run(words) == 3
        said = capfd.readouterr().err
        assert (said.count("\n"), "this takes more than" in said) == (1, True)
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_command_that_the_server_begins_is_not_bound(tmp_path: Path) -> None:
    asked = f"ulimit -S -d 1000000; exec /bin/sh -c '{jobs.RUN}' {tmp_path}/job sh -c 'ulimit -S -d'"
    subprocess.run(["/bin/sh", "-c", asked], check=True)
    known = subprocess.run(["/bin/sh", "-c", "ulimit -H -d"], capture_output=True, text=True, check=True)
    assert Path(tmp_path, "job.out").read_text() == known.stdout
