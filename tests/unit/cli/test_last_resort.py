"""Whatever a command ends with, it is said in a line."""

import errno
import logging
import os
import tempfile
import threading
from pathlib import Path

import pytest
from support.archives import letter, write_segment

from dlq.archive.storage import scratch
from dlq.archive.storage.store import LocalStore
from dlq.cli import app
from dlq.cli.context import Context
from dlq.operations.concurrency import Stop, do_at_once


class Failing:
    """A command line that ends with this error."""

    params = ()

    def __init__(self, error: Exception) -> None:
        self._error = error

    def main(self, *_: object, **__: object) -> None:
        raise self._error


def test_no_room_for_what_is_written_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app, "_drop_stdout", lambda: None)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        error = OSError(number, os.strerror(number), "x")
        monkeypatch.setattr(app, "command_line", lambda error=error: Failing(error))
        assert app.run(["ls"]) == 3
        said = capsys.readouterr().err
        assert (said.count("\n"), said.endswith("for x: make room, and run it again\n")) == (1, True)


def test_a_host_without_a_folder_for_temporary_files_is_told_how_to_name_one(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_segment(store, "p-0", [letter(1)])
    monkeypatch.setattr(scratch, "kept", {})
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    assert app.run(["ls"]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), "set TMPDIR to a folder that can be written" in said) == (1, True)


@pytest.mark.parametrize("place", ["here", "nowhere"])
def test_what_nobody_expected_is_a_line_whatever_it_holds_and_wherever_it_may_be_kept(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / place))
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(app, "command_line", lambda: Failing(ValueError("\udcff\x1b[2J")))
    assert app.run(["ls", "-v"]) == 1
    *trace, said = capsys.readouterr().err.splitlines(keepends=True)
    assert trace[0].startswith("Traceback")
    assert "ValueError: \\udcff\\x1b[2J\n" in trace
    assert said.startswith("dlq: unexpected ValueError: ")
    assert "\x1b" not in said
    assert said.count("\n") == 1
    kept = [file.read_text() for file in (tmp_path / "here").glob("dlq-error-*")]
    assert len(kept) == (place == "here")
    assert all("Traceback" in text and "\\udcff\\x1b" in text for text in kept)


def test_what_a_library_logs_steers_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert Context().workspace is not None
    logging.getLogger("a.library").error("the broker said \x1b[2J")
    assert capsys.readouterr().err == "the broker said \\x1b[2J\n"


def disguised() -> SystemError:
    """The Ctrl-C that came while a C library ran, as Python raises it."""
    error = SystemError("describe_topics returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    return error


def test_a_ctrl_c_within_a_c_library_is_a_ctrl_c_and_stops_what_is_done_for_many(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(item: int, _stop: Stop) -> int:
        raise disguised()

    monkeypatch.setattr(app, "command_line", lambda: Failing(disguised()))
    assert (app.run(["ls"]), capsys.readouterr().err) == (130, "dlq: interrupted\n")
    ((_, first), (_, second)) = do_at_once(work, [1, 2], 1)
    assert isinstance(first.exception(), KeyboardInterrupt)
    assert second.cancelled()


def test_no_more_threads_begin_than_there_is_work_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread), start(thread)))
    ended = do_at_once(lambda item, _stop: item, ["a", "b"], 100)
    assert ([future.result() for _, future in ended], len(begun)) == (["a", "b"], 2)
