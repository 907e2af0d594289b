"""Commands that were begun by a page: which of them are known, and for how long."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from support.waiting import eventually

from dlq.web.jobs import _KEPT, Job, Jobs, _read_start


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Jobs("archive", None)


def write_job(jobs: Jobs, name: str, code: int | None = 0) -> None:
    """One as a server leaves it, of this process; with an exit code it is over."""
    folder, pid = jobs._folder, os.getpid()
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(name, ("pull",), "pull", "ann", "2026-01-01T00:00:00Z", pid, _read_start(pid))
    (folder / f"{name}.json").write_text(json.dumps(asdict(job)))
    (folder / f"{name}.out").write_text("told\n")
    if code is not None:
        (folder / f"{name}.code").write_text(str(code))


def test_what_goes_on_is_known_however_many_were_begun_since(jobs: Jobs) -> None:
    write_job(jobs, "a-goes-on", code=None)
    write_job(jobs, "b-is-over")
    for number in range(_KEPT):
        write_job(jobs, f"c{number:03}")
    assert [job.job for job in jobs.list_running("pull")] == ["a-goes-on"]
    assert jobs.output(jobs.find("a-goes-on")) == ("told\n", "")
    assert len(jobs.list_all()) == _KEPT + 1


def test_what_is_over_leaves_nothing_once_enough_were_begun_since(jobs: Jobs) -> None:
    write_job(jobs, "a-is-over")
    for number in range(_KEPT):
        write_job(jobs, f"b{number:03}")
    assert "a-is-over" not in {job.job for job in jobs.list_all()}
    assert not list(jobs._folder.glob("a-is-over*"))


def test_a_command_imports_nothing_from_the_folder_of_the_server(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typer.py").write_text("open('ran', 'w')")
    job = jobs.start(["rules"], "rules", "ann [proven]")
    eventually(lambda: jobs.code(job) is not None)
    assert jobs.code(job) == 0
    assert not (tmp_path / "ran").exists()
