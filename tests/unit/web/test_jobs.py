"""Commands that were begun by a page: which of them are known, and for how long."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from support.archives import letter, write_segment
from support.consoles import Serve
from support.waiting import eventually

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.core.errors import UsageError
from dlq.core.settings import Settings
from dlq.operations.reading.books import list_audit
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay.actor import check_claim, person_of
from dlq.web.jobs import KEPT, Job, Jobs, read_start
from dlq.web.server import make_console


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Jobs("archive", None)


def write_job(jobs: Jobs, name: str, code: int | None = 0) -> None:
    """One as a server leaves it, of this process; with an exit code it is over."""
    folder, pid = jobs.folder, os.getpid()
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(name, ("pull",), "pull", "ann", "2026-01-01T00:00:00Z", pid, read_start(pid))
    (folder / f"{name}.json").write_text(json.dumps(asdict(job)))
    (folder / f"{name}.out").write_text("told\n")
    if code is not None:
        (folder / f"{name}.code").write_text(str(code))


def test_what_goes_on_is_known_however_many_were_begun_since(jobs: Jobs) -> None:
    write_job(jobs, "a-goes-on", code=None)
    write_job(jobs, "b-is-over")
    for number in range(KEPT):
        write_job(jobs, f"c{number:03}")
    assert [job.job for job in jobs.list_running("pull")] == ["a-goes-on"]
    assert jobs.output(jobs.find("a-goes-on")) == ("told\n", "")
    assert len(jobs.list_all()) == KEPT + 1


def test_what_is_over_leaves_nothing_once_enough_were_begun_since(jobs: Jobs) -> None:
    write_job(jobs, "a-is-over")
    for number in range(KEPT):
        write_job(jobs, f"b{number:03}")
    assert "a-is-over" not in {job.job for job in jobs.list_all()}
    assert not list(jobs.folder.glob("a-is-over*"))


@pytest.mark.parametrize("cut", [0, 2])
def test_the_page_of_a_command_shows_what_it_printed_masked(serve: Serve, cut: int) -> None:
    browser = serve()
    printed = json.dumps(
        {"plan": "p-1", "stopped_keys": [{"key": "Jane Doe", "why": "died_again"}]}, indent=2
    )
    write_job(browser.console.jobs, "applied")
    (browser.console.jobs.folder / "applied.out").write_text(printed[cut:])
    text = browser.get("/commands/applied").text
    assert "stopped_keys" in text or cut
    assert "<h2>Result</h2>" in text
    assert "Jane" not in text


@pytest.mark.parametrize("sees_all", [False, True])
def test_what_a_broker_quotes_of_a_letter_is_shown_to_who_may_see_letters(
    serve: Serve, sees_all: bool
) -> None:
    browser = serve(serve={"roles": {"read": ["*"], "unmask": ["*"] if sees_all else []}})
    write_job(browser.console.jobs, "applied")
    (browser.console.jobs.folder / "applied.err").write_text("shop refused it: no 'Jane Doe'\n")
    text = browser.get("/commands/applied").text
    assert "shop refused it" in text
    assert ("Jane Doe" in text) == sees_all


def test_a_command_imports_nothing_from_the_folder_of_the_server(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typer.py").write_text("open('ran', 'w')")
    job = jobs.start(["rules"], "rules", "ann [proven]")
    eventually(lambda: jobs.code(job) is not None)
    assert jobs.code(job) == 0
    assert not (tmp_path / "ran").exists()


def test_a_name_is_proven_to_a_command_by_the_server_and_by_nobody_s_words(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    ids = [f"{number}" * 32 for number in (1, 2)]
    write_segment(store, "p-0", [letter(n, record_id=one) for n, one in enumerate(ids)])
    monkeypatch.setenv("DLQ_ARCHIVE", store.location)
    for variable in ("DLQ_PROVEN_ACTOR", "LOGNAME", "USER"):
        monkeypatch.setenv(variable, "bob [proven]")
    job = jobs.start(["dismiss", ids[0], "--reason", "x"], "dismiss", "ann [proven]")
    eventually(lambda: jobs.code(job) is not None)
    assert run(["dismiss", ids[1], "--reason", "x"]) == 0
    rows = list_audit(open_workspace(Settings(archive=store.location), Notes()))
    whose = {row["subject"]: row["actor"] for row in rows}
    assert whose[ids[0]] == "ann [proven]"
    assert "bob" not in whose[ids[1]]
    assert "[proven]" not in whose[ids[1]]


def test_no_name_looks_proven_once_the_ledger_has_cut_it() -> None:
    with pytest.raises(UsageError, match="only dlq serve can mark"):
        check_claim("b" * 246 + " [proven] and more")
    assert person_of("Ann [proven] [proven]") == person_of("ann@host")


def test_pages_of_archives_that_are_named_alike_know_their_own_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        folders.add(make_console(Settings(), None, 1).jobs.folder)
    assert len(folders) == 2
